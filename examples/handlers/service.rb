# A handler for `http:` in the configuration of `reprise up`: the URL is http://127.0.0.1:8080/orders.
require "json"
require "webrick"

server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: ENV.fetch("PORT", 8080))
server.mount_proc("/orders") do |request, response|
  if !JSON.parse(request.body).key?("customer")
    response.status = 400 # the message moves to orders.failed
  elsif request["Reprise-Attempt"].to_i < 3
    response.status = 429
    response["Retry-After"] = "1" # a retry after 1 s
  else
    response.status = 204
  end
end
trap("TERM") { server.shutdown }
server.start
