// A handler that does nothing, for each kind of handler: exec, process, or a service on a port (http) or a socket (unix PATH).
const { readFileSync } = require('node:fs')
const http = require('node:http')
const readline = require('node:readline')

const [kind, path] = process.argv.slice(2)
if (kind === 'exec') {
  readFileSync(0)
} else if (kind === 'process') {
  readline.createInterface({ input: process.stdin }).on('line', line => {
    const message = JSON.parse(line)
    process.stdout.write(`{"id":${message.id},"result":"done"}\n`)
  })
  process.stdout.write('{"ready":true}\n')
} else {
  const server = http.createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(204).end())
  })
  if (kind === 'http') {
    server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`))
  } else {
    server.listen(path, () => console.log(`unix://${path}`))
  }
}
