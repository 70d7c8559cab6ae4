// The peer that uses BullMQ with Redis.
const Redis = require('ioredis');
const { Queue, Worker } = require('bullmq');
const { handler, lines, main } = require('./contract');

// The production guide of BullMQ recommends this connection for workers.
const connect = ({ url }) => new Redis(url, { maxRetriesPerRequest: null, retryStrategy: (times) => Math.max(Math.min(Math.exp(times), 20000), 1000) });

main({
  async publish(config) {
    const queue = new Queue(config.queue, { connection: connect(config) });
    const opts = { attempts: 1 + config.retries, backoff: { type: 'fixed', delay: config.delay }, removeOnComplete: true };
    await lines((batch) => queue.addBulk(batch.map((data) => ({ name: 'peer', data, opts }))));
    await queue.close();
  },

  async work(config) {
    const handle = handler();
    const worker = new Worker(config.queue, (job) => handle(job.data, 1 + job.attemptsMade), {
      connection: connect(config),
      concurrency: config.concurrency,
    });
    worker.on('error', console.error);
    return () => worker.close();
  },

  async replay(config) {
    const queue = new Queue(config.queue, { connection: connect(config) });
    await queue.retryJobs({ state: 'failed' });
    await queue.close();
  },
});
