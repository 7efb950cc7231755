-- breaks older: no
create sequence broker.maintained;
