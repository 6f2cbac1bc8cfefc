// What the SDK itself costs: a server that makes no sandbox and runs nothing, and answers at once what it would.
//   node serve_floor.mjs       prints its port
import { createServer } from 'node:http'

const frame = (flags, message) => {
  const body = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head[0] = flags
  head.writeUInt32BE(body.length, 1)
  return Buffer.concat([head, body])
}
const output = Buffer.concat([
  frame(0, { event: { start: { pid: 7 } } }),
  frame(0, { event: { data: { stdout: Buffer.from('hello\n').toString('base64') } } }),
  frame(0, { event: { end: { exitCode: 0, exited: true, status: 'exit status 0' } } }),
  frame(2, {}),
])
let made = 0

const server = createServer((req, res) => {
  req.resume()
  if (req.method === 'DELETE') return res.writeHead(204).end()
  if (req.url === '/process.Process/Start') return res.writeHead(200, { 'Content-Type': 'application/connect+json' }).end(output)
  const id = `i${String(made++).padStart(18, 'a')}`
  const body = JSON.stringify({
    sandboxID: id, templateID: 'base', alias: 'base', clientID: 'den', envdVersion: '0.6.13', envdAccessToken: 'none', domain: null,
  })
  res.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body)
})
server.keepAliveTimeout = 60_000
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
