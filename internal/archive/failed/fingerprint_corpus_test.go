package failed_test

import (
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// corpus contains errors in the form of twelve programming languages and of several human languages. The errors of a
// line have one cause, and different lines have different causes.
var corpus = map[string][][]string{
	"Go": {
		{`charge order 4711: Post "https://pay.example.com/v1/charges/ch_9f3Ka": context deadline exceeded`, `charge order 99: Post "https://pay.example.com/v1/charges/ch_Zz81q": context deadline exceeded`},
		{`charge order 4711: Post "https://pay.example.com/v1/charges/ch_9f3Ka": dial tcp 10.1.2.3:443: connect: connection refused`},
		{`json: cannot unmarshal string into Go struct field Order.amount of type int`},
		{`json: cannot unmarshal string into Go struct field Order.tax of type int`},
		{`open /var/spool/in/inv-20261103.csv: no such file or directory`, `open /var/spool/in/inv-20261104.csv: no such file or directory`},
		{`open /var/spool/in/inv-20261103.csv: permission denied`},
		{`user "anna" not found`, `user "bob.smith" not found`, `user "Zoë" not found`},
		{`pq: duplicate key value violates unique constraint "orders_pkey"`},
		{`pq: duplicate key value violates unique constraint "users_email_key"`},
		{`strconv.ParseInt: parsing "12a": invalid syntax`, `strconv.ParseInt: parsing "99x1": invalid syntax`},
		{`rpc error: code = Unavailable desc = transport is closing`},
		{`rpc error: code = NotFound desc = order 17`, `rpc error: code = NotFound desc = order 9`},
	},
	"Java": {
		{"java.lang.NullPointerException: Cannot invoke \"String.length()\" because \"order.name\" is null\n\tat shop.A.b(A.java:17)", "java.lang.NullPointerException: Cannot invoke \"String.length()\" because \"order.name\" is null\n\tat shop.C.d(C.java:3)"},
		{"java.lang.NullPointerException: Cannot invoke \"String.length()\" because \"order.city\" is null"},
		{`org.postgresql.util.PSQLException: ERROR: deadlock detected (Process 4711 waits for ShareLock on transaction 8812; blocked by process 4712)`, `org.postgresql.util.PSQLException: ERROR: deadlock detected (Process 19 waits for ShareLock on transaction 77; blocked by process 3)`},
		{`java.net.SocketTimeoutException: Read timed out after 30000 ms`, `java.net.SocketTimeoutException: Read timed out after 15000 ms`},
		{`feign.FeignException$NotFound: [404 Not Found] during [GET] to [http://stock/items/17]`, `feign.FeignException$NotFound: [404 Not Found] during [GET] to [http://stock/items/18]`},
		{`feign.FeignException$InternalServerError: [500 Internal Server Error] during [GET] to [http://stock/items/17]`},
		{`java.util.NoSuchElementException: No value present`},
		{`shop.CustomerBlockedException: Customer 'Anna Meier' is blocked`, `shop.CustomerBlockedException: Customer 'Bob' is blocked`},
	},
	"Python": {
		{"KeyError: 'amount'"},
		{"KeyError: 'tax'"},
		{"psycopg.errors.UniqueViolation: duplicate key value violates unique constraint \"orders_pkey\"\nDETAIL:  Key (id)=(17) already exists.", "psycopg.errors.UniqueViolation: duplicate key value violates unique constraint \"orders_pkey\"\nDETAIL:  Key (id)=(18) already exists."},
		{`requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pay.example.com', port=443): Max retries exceeded with url: /v1/charges/17 (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f1bd82a3d90>: Failed'))`, `requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pay.example.com', port=443): Max retries exceeded with url: /v1/charges/18 (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7fe2d0012f10>: Failed'))`},
		{`ValueError: invalid literal for int() with base 10: '12a'`, `ValueError: invalid literal for int() with base 10: '7_b'`},
		{`UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 17: invalid start byte`, `UnicodeDecodeError: 'utf-8' codec can't decode byte 0xc3 in position 3: invalid start byte`},
		{`botocore.exceptions.ClientError: An error occurred (NoSuchKey) when calling the GetObject operation: The specified key does not exist.`},
		{`botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied`},
		{`FileNotFoundError: [Errno 2] No such file or directory: '/data/in/a17.csv'`, `FileNotFoundError: [Errno 2] No such file or directory: '/data/in/b9.csv'`},
		{`PermissionError: [Errno 13] Permission denied: '/data/in/a17.csv'`},
	},
	"JavaScript": {
		{`TypeError: Cannot read properties of undefined (reading 'total')`},
		{`TypeError: Cannot read properties of undefined (reading 'price')`},
		{`AxiosError: Request failed with status code 404`},
		{`AxiosError: Request failed with status code 500`},
		{`Error: getaddrinfo ENOTFOUND pay.example.com`},
		{`SyntaxError: Unexpected token < in JSON at position 0`, `SyntaxError: Unexpected token < in JSON at position 17`},
		{`MongoServerError: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: ObjectId('6650f1c2a7b3c9d1e2f3a4b5') }`, `MongoServerError: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: ObjectId('0012f1c2a7b3c9d1e2f3a4ff') }`},
		{`Error: customer “Anna” is blocked`, `Error: customer “Bob Smith” is blocked`},
	},
	"PHP": {
		{`PHP Fatal error:  Uncaught PDOException: SQLSTATE[23000]: Integrity constraint violation: 1062 Duplicate entry 'anna@example.com' for key 'users.email'`, `PHP Fatal error:  Uncaught PDOException: SQLSTATE[23000]: Integrity constraint violation: 1062 Duplicate entry 'bob@example.org' for key 'users.email'`},
		{`PHP Fatal error:  Uncaught PDOException: SQLSTATE[23000]: Integrity constraint violation: 1452 Cannot add or update a child row`},
		{`PHP Warning:  Undefined array key "amount" in /app/src/Charge.php on line 17`, `PHP Warning:  Undefined array key "amount" in /app/src/Charge.php on line 18`},
		{`PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted (tried to allocate 20480 bytes)`, `PHP Fatal error:  Allowed memory size of 268435456 bytes exhausted (tried to allocate 4096 bytes)`},
		{`Symfony\Component\HttpClient\Exception\ClientException: HTTP/1.1 404 Not Found returned for "https://stock.example.com/17".`, `Symfony\Component\HttpClient\Exception\ClientException: HTTP/1.1 404 Not Found returned for "https://stock.example.com/18".`},
		{`Symfony\Component\HttpClient\Exception\ClientException: HTTP/1.1 403 Forbidden returned for "https://stock.example.com/17".`},
	},
	"Ruby": {
		{`ActiveRecord::RecordNotFound: Couldn't find Order with 'id'=17`, `ActiveRecord::RecordNotFound: Couldn't find Order with 'id'=18`},
		{`ActiveRecord::RecordNotFound: Couldn't find User with 'id'=17`},
		{`NoMethodError: undefined method 'total' for nil`},
		{`Net::ReadTimeout: Net::ReadTimeout with #<TCPSocket:(closed)>`},
		{`Faraday::ServerError: the server responded with status 503`},
		{`Faraday::ServerError: the server responded with status 502`},
		{`PG::ConnectionBad: connection to server at "10.0.0.7", port 5432 failed: Connection refused`, `PG::ConnectionBad: connection to server at "10.0.0.8", port 5432 failed: Connection refused`},
	},
	"C#": {
		{"System.InvalidOperationException: Customer 'Anna' is blocked", "System.InvalidOperationException: Customer 'Bob' is blocked"},
		{`System.Net.Http.HttpRequestException: Response status code does not indicate success: 404 (Not Found).`},
		{`System.Net.Http.HttpRequestException: Response status code does not indicate success: 500 (Internal Server Error).`},
		{`Microsoft.Data.SqlClient.SqlException (0x80131904): Violation of PRIMARY KEY constraint 'PK_Orders'. The duplicate key value is (17).`, `Microsoft.Data.SqlClient.SqlException (0x80131904): Violation of PRIMARY KEY constraint 'PK_Orders'. The duplicate key value is (18).`},
		{`Microsoft.Data.SqlClient.SqlException (0x80131904): Violation of PRIMARY KEY constraint 'PK_Users'. The duplicate key value is (17).`},
		{`System.FormatException: The input string '12a' was not in a correct format.`, `System.FormatException: The input string '7-b' was not in a correct format.`},
	},
	"Rust": {
		{`Error: error sending request for url (https://pay.example.com/v1/17): operation timed out`, `Error: error sending request for url (https://pay.example.com/v1/18): operation timed out`},
		{`thread 'tokio-runtime-worker' panicked at src/charge.rs:17:9: called Option::unwrap() on a None value`, `thread 'tokio-runtime-worker' panicked at src/charge.rs:18:9: called Option::unwrap() on a None value`},
		{`Error: Os { code: 2, kind: NotFound, message: "No such file or directory" }`},
		{`Error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }`},
		{"missing field `amount` at line 1 column 17", "missing field `amount` at line 3 column 4"},
		{"missing field `tax` at line 1 column 17"},
	},
	"Elixir": {
		{`** (Ecto.NoResultsError) expected at least one result but got none in query`},
		{`** (KeyError) key :amount not found in: %{id: 17}`, `** (KeyError) key :amount not found in: %{id: 18}`},
		{`** (KeyError) key :tax not found in: %{id: 17}`},
		{`** (exit) exited in: GenServer.call(#PID<0.123.0>, :charge, 5000)`, `** (exit) exited in: GenServer.call(#PID<0.9.0>, :charge, 5000)`},
	},
	"Perl": {
		{`DBD::Pg::st execute failed: ERROR:  value too long for type character varying(20) at charge.pl line 17.`, `DBD::Pg::st execute failed: ERROR:  value too long for type character varying(20) at charge.pl line 18.`},
		{`Can't locate object method "total" via package "Order" at charge.pl line 17.`},
		{`Can't locate object method "price" via package "Order" at charge.pl line 17.`},
	},
	"C++": {
		{`terminate called after throwing an instance of 'std::out_of_range'`},
		{`terminate called after throwing an instance of 'std::bad_alloc'`},
		{`what(): vector::_M_range_check: __n (which is 17) >= this->size() (which is 3)`, `what(): vector::_M_range_check: __n (which is 4) >= this->size() (which is 2)`},
		{`charge: signal 11 (core dumped)`},
		{`charge: signal 6 (core dumped)`},
	},
	"shell": {
		{`charge.sh: line 17: jq: command not found`, `charge.sh: line 18: jq: command not found`},
		{`curl: (7) Failed to connect to 10.0.0.7 port 443 after 12 ms: Connection refused`, `curl: (7) Failed to connect to 10.0.0.8 port 443 after 3 ms: Connection refused`},
		{`curl: (28) Operation timed out after 5001 milliseconds with 0 bytes received`, `curl: (28) Operation timed out after 5003 milliseconds with 0 bytes received`},
		{`curl: (22) The requested URL returned error: 404`},
		{`curl: (22) The requested URL returned error: 500`},
		{`aws: An error occurred (404) when calling the HeadObject operation: Not Found`},
		{`aws: An error occurred (403) when calling the HeadObject operation: Forbidden`},
	},
	"human languages": {
		{`Bestellung 17: Kunde „Müller GmbH“ ist gesperrt`, `Bestellung 18: Kunde „Meier“ ist gesperrt`, `Bestellung 18: Kunde "Öztürk & Söhne" ist gesperrt`, `Bestellung 18: Kunde ‚Zoë‘ ist gesperrt`},
		{`Bestellung 17: Kunde „Müller GmbH“ hat kein Guthaben`},
		{`commande 17 : le client « Jean Dupont » n'existe pas`, `commande 18 : le client « Léa » n'existe pas`, `commande 18 : le client “Léa” n'existe pas`},
		{`pedido 17: el cliente «Ana» no existe`, `pedido 18: el cliente "José María" no existe`},
		{`заказ 17: клиент «Иван» не найден`, `заказ 18: клиент „Анна“ не найден`},
		{`注文17:顧客「山田太郎」が見つかりません`, `注文18:顧客『鈴木』が見つかりません`},
		{`订单17:客户“王伟”不存在`, `订单18:客户“李娜”不存在`},
		{`주문 17: 고객 '김철수' 없음`, `주문 18: 고객 '이영희' 없음`},
		{`sipariş 17: müşteri "Ayşe" bulunamadı`, `sipariş 18: müşteri "İbrahim" bulunamadı`},
	},
	"keys and codes": {
		{`token c2VjcmV0LXRva2VuLTE= is not valid`, `token YW5vdGhlci10b2tlbg== is not valid`, `token QUJDREVGR0hJSktMTU5P is not valid`},
		{`secret/bWFya2V0aW5n: no such key`, `secret/ZmluYW5jZQ==: no such key`, `secret/aW52b2ljZXMtMjAyNg: no such key`},
		{`404 upstream`, `404 upstream`},
		{`500 upstream`},
		{`GET /orders/17: 404 upstream`, `GET /orders/18: 404 upstream`},
		{`GET /orders/17: 500 upstream`},
		{`upstream returned 404`, `upstream returned 404`},
		{`upstream returned 500`},
		{`upstream answered with 502`},
		{`upstream answered with 504`},
		{`the importer received 404 rows, not 17`, `the importer received 500 rows, not 18`},
		{`got 401 from https://sso.example.com/t/17`, `got 401 from https://sso.example.com/t/18`},
		{`got 429 from https://sso.example.com/t/17`},
		{`session eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxNyJ9.c2lnbmF0dXJl has expired`, `session eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI5OSJ9.b3RoZXItc2ln has expired`},
	},
}

func TestFingerprintCorpus(t *testing.T) {
	for language, causes := range corpus {
		seen := map[string]string{}
		for _, texts := range causes {
			first := failed.Fingerprint(texts[0])
			for _, text := range texts[1:] {
				if got := failed.Fingerprint(text); got != first {
					t.Errorf("%s: %q: got %q, want %q, as for %q", language, text, got, first, texts[0])
				}
			}
			if other, found := seen[first]; found {
				t.Errorf("%s: %q and %q have one fingerprint: %q", language, other, texts[0], first)
			}
			seen[first] = texts[0]
		}
	}
}
