// A handler for `http:` in the configuration of `reprise up`: the URL is http://127.0.0.1:8080/orders.
const http = require('node:http')

async function charge(request) {
  let body = ''
  for await (const chunk of request) body += chunk
  if (JSON.parse(body).customer === undefined) return [400] // the message moves to orders.failed
  if (request.headers['reprise-attempt'] < 3) return [429, { 'Retry-After': 1 }] // a retry after 1 s
  return [204]
}

http.createServer((request, response) => charge(request)
  .catch(e => [500, e.message])
  .then(answer => response.writeHead(...answer).end())
).listen(process.env.PORT ?? 8080, '127.0.0.1')
