-- Files that others of their folder need; the rest follows by folder and name.
tables/template.sql
