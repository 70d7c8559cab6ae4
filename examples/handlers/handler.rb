# A handler for `process:` in the configuration of `reprise up`; `reprise up --help` describes the lines. It handles one message at
# a time: several `processes:` handle messages in parallel.
require "json"

class Park < StandardError; end # the message moves to the failed queue without a retry

class Retry < StandardError # the message is retried after a delay in seconds
  attr_reader :after

  def initialize(error, after)
    super(error)
    @after = after
  end
end

def handle(message)
  body = message["body"] || message["body_base64"].unpack1("m")
  order = JSON.parse(body)
  raise Park, "order without a customer" unless order.key?("customer")
  raise Retry.new("the bank is closed", 600) if order["customer"] == "closed"

  puts "charged #{order["customer"]}" # in the log of `reprise up`
end

ANSWERS = $stdout
$stdout = $stderr # puts must not disturb the answers

def answer(**line)
  ANSWERS.write(JSON.generate(line), "\n")
  ANSWERS.flush
end

answer(ready: true)
$stdin.each_line do |line|
  message = JSON.parse(line)
  begin
    handle(message)
    answer(id: message["id"], result: "done")
  rescue Park => e
    answer(id: message["id"], result: "park", error: e.message)
  rescue Retry => e
    answer(id: message["id"], result: "retry", error: e.message, retry_after: e.after)
  rescue StandardError => e
    answer(id: message["id"], result: "retry", error: e.full_message(highlight: false))
  end
end
