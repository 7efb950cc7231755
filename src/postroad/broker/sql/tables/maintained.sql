-- When broker.maintain last ran, in milliseconds since 1970.
create sequence broker.maintained;
