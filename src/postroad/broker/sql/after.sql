-- Revokes access to bus queues that an earlier version has created open to mbus_<db>_user.
select broker._close_bus_queue(m)
from broker.queue q cross join unnest(broker._bus_names(q)) n(name) join mbus.queue m on m.name = n.name
where not q.is_temporary and not m.is_roles_security_model;
