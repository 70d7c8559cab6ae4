// The peer that uses rascal with RabbitMQ. The exchanges, queues and recovery strategies are those of rascal's advanced example.
const Rascal = require('rascal');
const { handler, lines, main } = require('./contract');

const settings = ({ url, queue, concurrency, delay }) => ({
  vhosts: {
    '/': {
      connections: [{ url: url.replace(/\/$/, '/%2F') }],
      exchanges: ['service', 'delay', 'retry', 'dead_letters'],
      queues: {
        [queue]: { options: { arguments: { 'x-dead-letter-exchange': 'dead_letters', 'x-dead-letter-routing-key': queue } } },
        [`delay:${queue}`]: { options: { arguments: { 'x-message-ttl': delay, 'x-dead-letter-exchange': 'retry' } } },
        [`dead_letters:${queue}`]: {},
      },
      bindings: {
        [`service[${queue}] -> ${queue}`]: {},
        [`delay[delay.${queue}] -> delay:${queue}`]: {},
        [`retry[${queue}.#] -> ${queue}`]: {},
        [`dead_letters[${queue}] -> dead_letters:${queue}`]: {},
      },
      subscriptions: { work: { queue, prefetch: concurrency } },
      publications: {
        message: { exchange: 'service', routingKey: queue, confirm: true },
        retry: { exchange: 'delay', confirm: true, options: { CC: [`delay.${queue}`] } },
      },
      publicationChannelPools: { confirmPool: { max: 10, min: 5, autostart: true } },
    },
  },
});

const open = async (config) => {
  const broker = await Rascal.BrokerAsPromised.create(Rascal.withDefaultConfig(settings(config)));
  broker.on('error', console.error);
  return broker;
};

main({
  async publish(config) {
    const broker = await open(config);
    const send = async (message) => {
      const publication = await broker.publish('message', message);
      await new Promise((resolve, reject) => {
        publication.on('success', resolve).on('error', reject).on('return', () => reject(new Error('returned')));
      });
    };
    await lines((batch) => Promise.all(batch.map(send)));
    await broker.shutdown();
  },

  async work(config) {
    const broker = await open(config);
    const handle = handler();
    const recovery = [{ strategy: 'forward', attempts: config.retries, publication: 'retry', xDeathFix: true }, { strategy: 'nack' }];
    const subscription = await broker.subscribe('work');
    subscription.on('error', console.error);
    subscription.on('message', (message, content, done) => {
      const state = message.properties.headers.rascal.recovery?.[config.queue];
      handle(content, 1 + (state?.forwarded ?? 0)).then(
        () => done(),
        (err) => done(err, recovery),
      );
    });
    return () => broker.shutdown();
  },
});
