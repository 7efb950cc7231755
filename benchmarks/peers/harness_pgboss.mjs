// pg-boss's adapter for the harness: insert in batches, fetch in batches, LISTEN on.
//
// A few workers share what is in flight: each fetches a batch, works on its jobs concurrently, and
// completes them with one call. `PGBOSS_FOLDER` is where npm has installed it. The environment and
// the records are those of benchmarks/harness/contract.py.

import { openSync, readFileSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const folder = `${process.env.PGBOSS_FOLDER}/node_modules/pg-boss`;
const release = JSON.parse(readFileSync(`${folder}/package.json`, "utf8")).version;
const { PgBoss } = await import(pathToFileURL(`${folder}/dist/index.js`).href);

const get = (name, otherwise) => process.env[name] ?? otherwise;
const number = (name, otherwise) => Number(get(name, otherwise));
const QUEUE = "bench";
const FETCHERS = 4;
const workers = number("WORKER_COUNT", "32");
const workMs = number("JOB_WORK_MS", "1");
const offered = number("PRODUCER_RATE", "800");
const rateFile = get("PRODUCER_RATE_CONTROL_FILE", "");
const isFilling = get("PRODUCER_MODE", "fixed") === "depth-target";
const batchMax = number("PRODUCER_BATCH_MAX", "128");
const batchMs = number("PRODUCER_BATCH_MS", "10");
const targetDepth = number("TARGET_DEPTH", "1000");
const sampleMs = number("SAMPLE_EVERY_S", "5") * 1000;
const instance = number("BENCH_INSTANCE_ID", "0");
const hasDetail = get("SAMPLE_DETAIL", "0") === "1";
const ledger = get("LEDGER_FOLDER", "");
const padding = "x".repeat(Math.max(0, number("JOB_PAYLOAD_BYTES", "256") - 60));

let posted = 0;
let started = 0;
let completed = 0;
let isStopping = false;
let fresh = new Map();
const windows = [];
const file = (name) =>
  ledger ? openSync(`${ledger}/${name}-${instance}-${process.pid}`, "a") : null;
const handledLedger = file("handled");
const postedLedger = file("posted");

const write = (record) => process.stdout.write(`${JSON.stringify(record)}\n`);
const log = (text) => process.stderr.write(`${text}\n`);
const stamp = (record) => ({
  t: new Date().toISOString(),
  system: "pgboss",
  instance_id: instance,
  ...record,
});

// The buckets of benchmarks/harness/histogram.py.
function bucket(milliseconds) {
  const value = Math.max(0, Math.floor(milliseconds * 1000));
  const shift = Math.max(0, Math.floor(Math.log2(Math.max(1, value))) + 1 - 11);
  return shift * 2048 + Math.floor(value / 2 ** shift);
}

function percentile(counts, total, part) {
  let seen = 0;
  for (const [key, count] of counts) {
    seen += count;
    if (seen >= part * total) {
      return ((key % 2048) * 2 ** Math.floor(key / 2048)) / 1000;
    }
  }
  return 0;
}

async function handle(job) {
  started += 1;
  const key = bucket(Date.now() - job.data.at * 1000);
  fresh.set(key, (fresh.get(key) ?? 0) + 1);
  if (workMs) {
    await sleep(workMs);
  }
  if (handledLedger !== null) {
    const record = Buffer.alloc(16);
    record.writeBigInt64LE(BigInt(job.data.seq), 0);
    record.writeDoubleLE(Date.now() / 1000, 8);
    writeSync(handledLedger, record);
  }
  completed += 1;
}

const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL,
  max: FETCHERS + 4,
  useListenNotify: true,
  schedule: false,
  superviseIntervalSeconds: 2,
  maintenanceIntervalSeconds: 2,
  monitorIntervalSeconds: 2,
});
boss.on("error", (error) => log(`error: ${error.message}`));
await boss.start();
await boss.createQueue(QUEUE, { notify: true, heartbeatSeconds: 10, retryLimit: 10 });

write({
  kind: "descriptor",
  system: "pgboss",
  event_tables: ["pgboss.job"],
  extensions: [],
  version: release,
  schema_version: String(await boss.schemaVersion()),
  db_name: new URL(process.env.DATABASE_URL).pathname.slice(1),
  started_at: new Date().toISOString(),
  instance_id: instance,
});

if (workers) {
  const fetchers = Math.min(FETCHERS, workers);
  await boss.work(
    QUEUE,
    {
      localConcurrency: fetchers,
      batchSize: Math.ceil(workers / fetchers),
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
      heartbeatRefreshSeconds: 3,
    },
    async (jobs) => {
      await Promise.all(jobs.map(handle));
    },
  );
}

let sequence = instance * 1e12;
async function post(amount) {
  const first = sequence;
  sequence += amount;
  const at = Date.now() / 1000;
  const jobs = Array.from({ length: amount }, (_, each) => ({
    data: { seq: first + each, at, padding },
  }));
  posted += amount;
  try {
    await boss.insert(QUEUE, jobs);
    if (postedLedger !== null) {
      const record = Buffer.alloc(24);
      record.writeBigInt64LE(BigInt(first), 0);
      record.writeBigInt64LE(BigInt(amount), 8);
      record.writeDoubleLE(at, 16);
      writeSync(postedLedger, record);
    }
  } catch (error) {
    posted -= amount;
    log(`post failed: ${error.message}`);
    await sleep(200);
  }
}

function rate() {
  try {
    return rateFile ? Number(readFileSync(rateFile, "ascii")) : offered;
  } catch {
    return offered;
  }
}

async function produce() {
  let credit = 0;
  let last = performance.now();
  while (!isStopping) {
    if (isFilling) {
      const room = targetDepth - (posted - completed);
      if (room >= Math.min(batchMax, targetDepth)) {
        await post(Math.min(room, batchMax));
      } else {
        await sleep(2);
      }
      continue;
    }
    await sleep(batchMs);
    const now = performance.now();
    credit += (rate() * (now - last)) / 1000;
    last = now;
    const amount = Math.min(Math.floor(credit), batchMax);
    if (amount) {
      credit -= amount;
      await post(amount);
    }
  }
}

let before = { at: performance.now(), posted: 0, completed: 0 };
function sample() {
  const taken = [...fresh].sort((one, other) => one[0] - other[0]);
  fresh = new Map();
  if (hasDetail) {
    write(stamp({ kind: "detail", posted, started, completed, latencies: taken }));
  }
  windows.push(taken);
  if (windows.length > Math.max(1, Math.round(30000 / sampleMs))) {
    windows.shift();
  }
  const merged = new Map();
  for (const [key, count] of windows.flat()) {
    merged.set(key, (merged.get(key) ?? 0) + count);
  }
  const counts = [...merged].sort((one, other) => one[0] - other[0]);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  const now = performance.now();
  const seconds = (now - before.at) / 1000;
  const window = sampleMs / 1000;
  const metrics = [
    ["claim_p50_ms", percentile(counts, total, 0.5), 30],
    ["claim_p95_ms", percentile(counts, total, 0.95), 30],
    ["claim_p99_ms", percentile(counts, total, 0.99), 30],
    ["enqueue_rate", (posted - before.posted) / seconds, window],
    ["completion_rate", (completed - before.completed) / seconds, window],
    ["queue_depth", Math.max(0, posted - started), 0],
  ];
  before = { at: now, posted, completed };
  for (const [metric, value, windowS] of metrics) {
    const subject = { subject_kind: "adapter", subject: "", metric };
    write(stamp({ kind: "adapter", ...subject, value, window_s: windowS }));
  }
}

async function sampling() {
  while (!isStopping) {
    await sleep(sampleMs - (Date.now() % sampleMs));
    sample();
  }
}

async function stop() {
  if (isStopping) {
    return;
  }
  isStopping = true;
  setTimeout(() => process.exit(0), 4000).unref();
  await boss.stop({ graceful: true, timeout: 2000 }).catch((error) => log(error.message));
  sample();
  process.exit(0);
}
process.on("SIGTERM", stop);
process.on("SIGINT", stop);
sampling();
if (offered > 0) {
  produce();
}
