// The part that the peers in JavaScript have in common; see contract.go.
const net = require('net');
const readline = require('readline');

const env = (name) => process.env[`PEER_${name}`];
const config = {
  url: env('URL'),
  queue: env('QUEUE'),
  concurrency: Number(env('CONCURRENCY')),
  retries: Number(env('RETRIES')),
  delay: Number(env('DELAY_MS')),
};

// handler returns the handler of all peers.
const handler = () => {
  const reports = net.connect(env('REPORTS'));
  reports.on('error', () => process.exit(1)); // the benchmark ended
  reports.on('close', () => process.exit(1));
  return async ({ id, fail, ms }, attempt) => {
    const now = Math.round((performance.timeOrigin + performance.now()) * 1000);
    reports.write(`${id} ${attempt} ${now}\n`);
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    if (!env('HEALED') && (fail < 0 || attempt <= fail)) throw new Error('payment provider: 503 Service Unavailable');
  };
};

// lines calls store with batches of the messages that arrive together on stdin.
const lines = async (store) => {
  let batch = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    batch.push(JSON.parse(line));
    if (batch.length < 500 && process.stdin.readableLength > 0) continue;
    await store(batch);
    batch = [];
  }
  if (batch.length > 0) await store(batch);
};

// main runs the verb in the arguments. The function stop of the verb work ends the worker gracefully.
const main = async (verbs) => {
  const stop = await verbs[process.argv[2]](config);
  if (process.argv[2] !== 'work') process.exit(0);
  process.on('SIGTERM', async () => {
    await stop();
    process.exit(0);
  });
};

module.exports = {
  handler,
  lines,
  main: (verbs) =>
    main(verbs).catch((err) => {
      console.error(err);
      process.exit(1);
    }),
};
