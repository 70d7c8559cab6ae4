// A subscriber whose recovery forwards messages after two attempts, and one that republishes them with immediateNack. npm: rascal@21.0.1.
//   node rascal.js URL fail      then capture the messages of the queues rascal-dead and rascal-nack-dead
//   node rascal.js URL handle    prints each message that the subscribers receive
const Rascal = require('rascal');

const [, , url, what] = process.argv;
const queue = { options: { durable: true } };
const dead = (to) => ({ options: { durable: true, arguments: { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': to } } });
const parts = new URL(url);
const vhost = decodeURIComponent(parts.pathname.slice(1)) || '/';
const config = {
  vhosts: {
    [vhost]: {
      connection: { url },
      queues: { 'rascal-work': queue, 'rascal-dead': queue, 'rascal-nack': dead('rascal-nack-dead'), 'rascal-nack-dead': queue },
      publications: { work: { queue: 'rascal-work' }, dead: { queue: 'rascal-dead' }, nack: { queue: 'rascal-nack' } },
      subscriptions: { work: { queue: 'rascal-work' }, nack: { queue: 'rascal-nack' } },
    },
  },
};
const recovery = {
  work: [{ strategy: 'republish', attempts: 1 }, { strategy: 'forward', publication: 'dead' }],
  nack: [{ strategy: 'republish', attempts: 1 }, { strategy: 'republish', immediateNack: true }],
};

(async () => {
  const broker = await Rascal.BrokerAsPromised.create(Rascal.withDefaultConfig(config));
  broker.on('error', console.error);
  for (const name of ['work', 'nack']) {
    const subscription = await broker.subscribe(name);
    subscription.on('message', (message, content, done) => {
      if (what === 'fail') return done(Object.assign(new Error(`no such customer ${content.customer}`), { code: 'ENOENT' }), recovery[name]);
      console.log(`${name} charged ${content.customer}`);
      done();
    });
    if (what === 'fail') await broker.publish(name, { customer: 4711 });
  }
})();
