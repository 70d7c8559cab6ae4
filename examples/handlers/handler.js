// A handler for `process:` in the configuration of `reprise up`; `reprise up --help` describes the lines. It handles messages
// concurrently, and answers them in any order.
const readline = require('node:readline')

class Park extends Error {} // the message moves to the failed queue without a retry

async function handle(message) {
  const body = message.body ?? Buffer.from(message.body_base64, 'base64')
  const order = JSON.parse(body)
  if (order.customer === undefined) throw new Park('order without a customer')
  if (order.customer === 'closed') throw Object.assign(new Error('the bank is closed'), { retryAfter: 600 }) // in seconds
  for (const [i, item] of (order.items ?? []).entries()) {
    answer({ id: message.id, progress: i / order.items.length, text: `item ${item}` }) // the console shows it
  }
  console.log('charged', order.customer) // in the log of `reprise up`
}

console.log = console.error // must not disturb the answers

function answer(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

async function run(line) {
  const message = JSON.parse(line)
  try {
    await handle(message)
    answer({ id: message.id, result: 'done' })
  } catch (e) {
    const result = e instanceof Park ? 'park' : 'retry'
    answer({ id: message.id, result, error: result === 'park' ? e.message : e.stack, retry_after: e.retryAfter })
  }
}

readline.createInterface({ input: process.stdin }).on('line', run)
answer({ ready: true })
