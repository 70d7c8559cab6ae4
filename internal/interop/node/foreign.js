// Implements the four published designs with amqplib. Usage and output are the same as in python/foreign.py. The two
// programs differ only in details that the designs do not specify.
//
//   node foreign.js DESIGN amqp://guest:guest@localhost:5672 [DELAY-IN-MS]
'use strict'
const amqp = require('amqplib')
const crypto = require('crypto')
const readline = require('readline')

const say = what => console.log(JSON.stringify(what))
const deaths = message => message.properties.headers['x-death'] || []

// Returns the options of a copy: all properties, and all headers except the headers of the broker.
function copied (message, headers) {
  const { deliveryMode, ...options } = message.properties
  const own = Object.entries(options.headers).filter(([name]) => !/^x-(death$|first-death-|last-death-|delivery-count|acquired-count)/.test(name))
  return { ...options, persistent: true, headers: { ...Object.fromEntries(own), ...headers } }
}

const designs = {
  coverart: {
    delay: 4 * 60 * 60 * 1000,
    queues: ['index', 'delete', 'move'].map(event => 'cover-art-archive.' + event),
    addresses: ['index', 'delete', 'move'].map(event => ['cover-art-archive', event]),
    async declare (channel) {
      await channel.assertExchange('cover-art-archive', 'direct')
      for (const event of ['index', 'delete', 'move']) {
        await channel.assertQueue('cover-art-archive.' + event)
        await channel.bindQueue('cover-art-archive.' + event, 'cover-art-archive', event)
      }
      for (const name of ['cover-art-archive.retry', 'cover-art-archive.failed']) {
        await channel.assertExchange(name, 'fanout')
        await channel.assertQueue(name, name.endsWith('retry') ? { messageTtl: this.delay, deadLetterExchange: 'cover-art-archive' } : {})
        await channel.bindQueue(name, name, '')
      }
    },
    left: message => Number(message.properties.headers['mb-retries'] ?? 4),
    attempt (message) { return 5 - this.left(message) },
    async failed (channel, message, error) {
      const left = this.left(message)
      const headers = { 'mb-exceptions': [...(message.properties.headers['mb-exceptions'] || []), error] }
      if (left > 0) headers['mb-retries'] = left - 1
      await channel.send(left > 0 ? 'cover-art-archive.retry' : 'cover-art-archive.failed', message, copied(message, headers))
      channel.ack(message)
      return left > 0 ? 'retried' : 'parked'
    }
  },

  staking: {
    delay: 5000,
    queues: ['active_staking_queue', 'unbonding_staking_queue'],
    addresses: [['', 'active_staking_queue'], ['', 'unbonding_staking_queue']],
    async declare (channel) {
      await channel.assertExchange('common_dlx', 'direct', { arguments: { 'x-queue-type': 'quorum' } })
      for (const queue of this.queues) {
        const options = { arguments: { 'x-queue-type': 'quorum' } }
        await channel.assertQueue(queue + '_delay', { ...options, deadLetterExchange: '', deadLetterRoutingKey: queue })
        await channel.assertQueue(queue, { ...options, deadLetterExchange: 'common_dlx', deadLetterRoutingKey: queue + '_routing_key' })
        await channel.bindQueue(queue + '_delay', 'common_dlx', queue + '_routing_key')
      }
    },
    attempt: message => 1 + (message.properties.headers['x-processing-attempts'] || 0),
    async failed (channel, message) {
      const options = copied(message, { 'x-processing-attempts': this.attempt(message) })
      await channel.send('common_dlx', message, { ...options, expiration: String(this.delay) }, message.fields.routingKey + '_routing_key')
      channel.ack(message)
      return 'retried'
    }
  },

  workretry: {
    delay: 300000,
    queues: ['WorkQueue'],
    addresses: [['WorkExchange', '']],
    async declare (channel) {
      await channel.assertExchange('WorkExchange', 'direct')
      await channel.assertExchange('RetryExchange', 'direct')
      await channel.assertQueue('WorkQueue', { deadLetterExchange: 'RetryExchange' })
      await channel.assertQueue('RetryQueue', { deadLetterExchange: 'WorkExchange', messageTtl: this.delay })
      await channel.bindQueue('WorkQueue', 'WorkExchange', '')
      await channel.bindQueue('RetryQueue', 'RetryExchange', '')
    },
    attempt: message => deaths(message).filter(d => d.queue === 'WorkQueue' && d.reason === 'rejected').reduce((n, d) => n + Number(d.count), 1),
    async failed (channel, message) {
      channel.nack(message, false, false)
      return 'retried'
    }
  },

  cdnpurge: {
    delay: 10000,
    queues: ['cdn-purge'],
    addresses: ['url', 'directory', 'tag'].map(key => ['cdn-purge', key]),
    async declare (channel) {
      await channel.assertExchange('cdn-purge', 'direct')
      await channel.assertExchange('cdn-purge.wait', 'direct')
      await channel.assertQueue('cdn-purge')
      await channel.assertQueue('cdn-purge.wait', { deadLetterExchange: 'cdn-purge' })
      for (const [, key] of this.addresses) {
        await channel.bindQueue('cdn-purge', 'cdn-purge', key)
        await channel.bindQueue('cdn-purge.wait', 'cdn-purge.wait', key)
      }
    },
    waited: message => Number(deaths(message)[0]?.['original-expiration'] ?? 0),
    attempt (message) {
      const waited = this.waited(message)
      return waited ? 2 + Math.round(Math.log(waited / this.delay) / Math.log(3)) : 1
    },
    async failed (channel, message) {
      const last = this.waited(message)
      const expiration = last ? Math.round(3 * last * (0.95 + Math.random() / 10)) : this.delay
      await channel.send('cdn-purge.wait', message, { ...copied(message), expiration: String(expiration) })
      channel.ack(message)
      return 'retried'
    }
  }
}

const headers = { shop: 'blau', 'priority-customer': true, items: [1, 2] }
const properties = { contentType: 'text/plain', correlationId: 'order 7', type: 'order', appId: 'foreign' }

function check (message) {
  const id = message.properties.messageId
  for (const [name, want] of Object.entries(headers)) {
    const is = message.properties.headers[name]
    if (JSON.stringify(is) !== JSON.stringify(want)) say({ event: 'changed', id, what: `header ${name} is ${JSON.stringify(is)}` })
  }
  for (const [name, want] of Object.entries(properties)) {
    if (message.properties[name] !== want) say({ event: 'changed', id, what: `${name} is ${message.properties[name]}` })
  }
  if (!message.content.toString().startsWith(id)) say({ event: 'changed', id, what: `body is ${message.content}` })
}

async function main (name, url, delay) {
  const design = designs[name]
  if (delay) design.delay = Number(delay)
  const connection = await amqp.connect(url)
  const channel = await connection.createConfirmChannel()
  // The promise resolves when the broker has confirmed the message.
  channel.send = (exchange, message, options, key = message.fields.routingKey) => new Promise((resolve, reject) =>
    channel.publish(exchange, key, message.content, options, error => error ? reject(error) : resolve()))
  await design.declare(channel)
  await channel.prefetch(3)

  const handle = async message => {
    check(message)
    const attempt = design.attempt(message)
    const fails = Number(/fails=(-?\d+)/.exec(message.content)[1])
    let event = 'done'
    if (fails < 0 || attempt <= fails) {
      event = await design.failed(channel, message, `attempt ${attempt} fails`)
    } else {
      channel.ack(message)
    }
    say({ event, id: message.properties.messageId, attempt })
  }
  let last = Promise.resolve()
  const tags = []
  for (const queue of design.queues) {
    const { consumerTag } = await channel.consume(queue, message => { last = last.then(() => handle(message)) })
    tags.push(consumerTag)
  }
  say({ event: 'ready' })

  for await (const line of readline.createInterface({ input: process.stdin })) {
    for (let i = 0; i < Number(line.split(' ')[1]); i++) {
      const [exchange, key] = design.addresses[i % design.addresses.length]
      const messageId = crypto.randomBytes(4).toString('hex')
      say({ event: 'published', id: messageId, fails: i % 4 })
      channel.publish(exchange, key, Buffer.from(`${messageId} fails=${i % 4}`), { messageId, persistent: true, mandatory: true, headers, ...properties })
    }
    await channel.waitForConfirms()
  }
  for (const tag of tags) await channel.cancel(tag)
  await last
  await channel.close()
  await connection.close()
}

main(...process.argv.slice(2)).catch(error => {
  console.error(error)
  process.exit(1)
})
