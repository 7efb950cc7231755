// A worker for a queue of the bus in Node.js, with nothing but SQL and the driver `pg`.
//
//   npm install pg
//   DATABASE_URL=postgresql://… node worker.js orders
//
// It leases messages, extends the leases of those that take long, acknowledges or gives back each one, and waits
// for notifications. Stop it with SIGTERM: messages that have begun are finished.
const { Client } = require("pg");

const [queue = "orders", consumer = "default"] = process.argv.slice(2);
const TTL_SECONDS = 30;
const BATCH = 10;
// Retries and ended leases become ready without a notification.
const POLL_MILLISECONDS = 1000;
const LEASE_LOST = "MB015";

// Your work. An error is a failed attempt: the message comes again later, at last it goes to the dead message queue.
async function handle(data, attempt) {
  if (data.fails && attempt === 1) throw new Error("not the first time");
  console.log(`order ${data.number}, attempt ${attempt}`);
}

async function work(client, message) {
  const holding = setInterval(() => {
    client
      .query("select mbus.extend($1, $2, make_interval(secs => $3))", [message.iid, message.token, TTL_SECONDS])
      .catch((failure) => console.error(`not extended: ${failure.message}`));
  }, (TTL_SECONDS * 1000) / 3);
  try {
    await handle(message.data, message.attempt);
    await client.query("select mbus.ack($1, $2)", [message.iid, message.token]);
  } catch (failure) {
    // Another worker has the message, or will get it: there is nothing to give back.
    if (failure.code === LEASE_LOST) return;
    await client.query("select mbus.nack($1, $2, error => $3)", [message.iid, message.token, String(failure)]);
  } finally {
    clearInterval(holding);
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  let wake = () => {};
  let stopping = false;
  client.on("notification", (notice) => notice.payload === queue && wake());
  process.on("SIGTERM", () => {
    stopping = true;
    wake();
  });
  await client.connect();
  await client.query("listen mbus");
  // Names of functions cannot be parameters: quote them.
  const lease = client.escapeIdentifier(`lease_${queue}_by_${consumer}`);
  console.log("ready");
  while (!stopping) {
    const noticed = new Promise((resolve) => (wake = resolve));
    const { rows } = await client.query(
      `select iid, token, attempt, data from mbus.${lease}($1, make_interval(secs => $2))`,
      [BATCH, TTL_SECONDS],
    );
    await Promise.all(rows.map((message) => work(client, message)));
    if (rows.length === 0) await Promise.race([noticed, new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS))]);
  }
  await client.end();
}

// A lost connection ends the process; its leases end too. Let the service manager start it again.
main().catch((failure) => {
  console.error(failure);
  process.exit(1);
});
