// Rejects a message twice. The rejected message waits in a queue with a message TTL, the broker dead-letters it to the
// work queue, and x-death counts the rejections. Prints the attempts.
//
//   node retry.js amqp://guest:guest@localhost:5672/ queue
'use strict'
const amqp = require('amqplib')

async function main (url, work) {
  const wait = work + '.wait'
  const connection = await amqp.connect(url)
  const channel = await connection.createConfirmChannel()
  await channel.assertQueue(work, { durable: true, deadLetterExchange: '', deadLetterRoutingKey: wait })
  await channel.assertQueue(wait, { durable: true, messageTtl: 20, deadLetterExchange: '', deadLetterRoutingKey: work })
  await channel.prefetch(1)

  const done = new Promise((resolve, reject) => {
    channel.consume(work, message => {
      if (message === null) return // deleteQueue below cancels the consumer
      const deaths = message.properties.headers['x-death'] || []
      const rejections = deaths.filter(d => d.reason === 'rejected' && d.queue === work)
      const attempt = 1 + (rejections.length ? Number(rejections[0].count) : 0)
      console.log('attempt ' + attempt)
      if (message.properties.messageId !== 'id-1' || message.content.toString() !== 'body') {
        reject(new Error('received another message'))
      } else if (attempt < 3) {
        channel.reject(message, false)
      } else {
        channel.ack(message)
        resolve()
      }
    }).catch(reject)
  })
  channel.sendToQueue(work, Buffer.from('body'), { messageId: 'id-1', mandatory: true })
  await channel.waitForConfirms()
  await done
  console.log('done')
  await channel.deleteQueue(work)
  await channel.deleteQueue(wait)
  await connection.close()
}

main(process.argv[2], process.argv[3]).catch(error => {
  console.error(error)
  process.exit(1)
})
