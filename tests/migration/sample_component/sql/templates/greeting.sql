hello %I, it's a \ template: $$ :name
