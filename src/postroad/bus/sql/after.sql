-- The functions of existing queues are made from the templates just installed.
select mbus._generate(q) from mbus.queue q;
