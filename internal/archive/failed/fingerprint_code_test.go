package failed_test

import (
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Codes are part of the fingerprint; IDs, ports and counts are not.
func TestFingerprintKeepsCodes(t *testing.T) {
	for _, c := range []struct{ err, want string }{
		// Processes.
		{"exit status 1", "exit status 1"},
		{"sh: exit status 75: order 17 is busy", "sh: exit status 75: order * is busy"},
		{"exit status 0xc0000005", "exit status 0xc0000005"},
		{"Command '['convert', '17.png']' returned non-zero exit status 2.", "Command '['convert', '*']' returned non-zero exit status 2."},
		{"container 3f2a9bc81d exited with code 137", "container * exited with code 137"},
		{"Process finished with exit code: -1 after 12s", "Process finished with exit code: -1 after *"},
		{"worker 12: terminated by signal 9", "worker *: terminated by signal 9"},

		// HTTP.
		{"POST https://shop.example/orders/17: 503 Service Unavailable", "POST https://shop.example/orders/*: 503 Service Unavailable"},
		{"order 4711: unexpected status 503 Service Unavailable", "order *: unexpected status 503 Service Unavailable"},
		{`Get "http://10.0.0.7:8080/orders/17": HTTP 503`, `Get "*": HTTP 503`},
		{"malformed answer: HTTP/1.1 502 from 10.0.0.7:80", "malformed answer: HTTP/* 502 from *"},
		{"googleapi: Error 403: Quota exceeded for project 1234567, rateLimitExceeded", "googleapi: Error 403: Quota exceeded for project *, rateLimitExceeded"},
		{"operation error S3: PutObject, https response error StatusCode: 404, RequestID: 8A1B2C3D4E, NoSuchBucket", "operation error S*: PutObject, https response error StatusCode: 404, RequestID: *, NoSuchBucket"},
		{"AxiosError: Request failed with status code 404", "AxiosError: Request failed with status code 404"},
		{"HTTPError: Response code 429 (Too Many Requests) after 3 retries", "HTTPError: Response code 429 (Too Many Requests) after * retries"},
		{"requests.exceptions.HTTPError: 404 Client Error: Not Found for url: http://localhost:8000/orders/17", "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: http://localhost:*/orders/*"},
		{"urllib.error.HTTPError: HTTP Error 500: Internal Server Error", "urllib.error.HTTPError: HTTP Error 500: Internal Server Error"},
		{`org.springframework.web.client.HttpServerErrorException: 502 Bad Gateway: "17 bytes"`, `org.springframework.web.client.HttpServerErrorException: 502 Bad Gateway: "*"`},
		{"java.io.IOException: Server returned HTTP response code: 401 for URL: http://10.0.0.7/17", "java.io.IOException: Server returned HTTP response code: 401 for URL: http://*"},
		{"curl: (7) Failed to connect to 10.0.0.7 port 443 after 3 ms", "curl: (7) Failed to connect to * port * after * ms"},
		{"curl: (22) The requested URL returned error: 503", "curl: (22) The requested URL returned error: 503"},
		{`upstream said {"status":422,"order":"17"}`, `upstream said {"status":422,"order":"*"}`},

		// PostgreSQL.
		{`ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505)`, `ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505)`},
		{"order 17: deadlock detected (SQLSTATE 40P01)", "order *: deadlock detected (SQLSTATE 40P01)"},
		{"ERROR: could not serialize access due to concurrent update (SQLSTATE 40001)", "ERROR: could not serialize access due to concurrent update (SQLSTATE 40001)"},
		{`error: duplicate key, code: '23505', detail: 'Key (id)=(17) already exists.'`, `error: duplicate key, code: '23505', detail: '*'`},
		{"SQL Error: 0, SQLState: 08S01", "SQL Error: 0, SQLState: 08S01"},

		// MySQL, Oracle, DB2, MongoDB.
		{"Error 1062 (23000): Duplicate entry '17' for key 'orders.PRIMARY'", "Error 1062 (23000): Duplicate entry '*' for key 'orders.PRIMARY'"},
		{"Error 1205: Lock wait timeout exceeded; try restarting transaction", "Error 1205: Lock wait timeout exceeded; try restarting transaction"},
		{"mysql.connector.errors.InternalError: 1213 (40001): Deadlock found", "mysql.connector.errors.InternalError: 1213 (40001): Deadlock found"},
		{`(pymysql.err.IntegrityError) (1062, "Duplicate entry '17' for key 'PRIMARY'")`, `(pymysql.err.IntegrityError) (1062, "*")`},
		{"SQLSTATE[HY000] [2002] Connection refused", "SQLSTATE[HY000] [*] Connection refused"},
		{"error code 1062 in statement 4", "error code 1062 in statement *"},
		{"java.sql.SQLException: ORA-00001: unique constraint (SHOP.PK_17) violated", "java.sql.SQLException: ORA-00001: unique constraint (SHOP.PK_*) violated"},
		{"DB2 SQL Error: SQLCODE=-803, SQLSTATE=23505, SQLERRMC=17", "DB* SQL Error: SQLCODE=-803, SQLSTATE=23505, SQLERRMC=*"},
		{"E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: 17 }", "E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: * }"},

		// Operating systems and AMQP.
		{"ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5672)", "ConnectionRefusedError: [Errno 111] Connect call failed ('*', *)"},
		{"Error: connect ECONNREFUSED 10.0.0.7:5432 { errno: -111, code: 'ECONNREFUSED' }", "Error: connect ECONNREFUSED * { errno: -111, code: 'ECONNREFUSED' }"},
		{"No such file or directory (os error 2): /tmp/17", "No such file or directory (os error 2): /tmp/*"},
		{"[WinError 10061] No connection could be made", "[WinError 10061] No connection could be made"},
		{"payment 17 declined: code=E1234", "payment * declined: code=E1234"},
		{"invoice 17: ERR-42", "invoice *: ERR-42"},
		{`Exception (404) Reason: "NOT_FOUND - no queue 'orders.17' in vhost '/'"`, `Exception (404) Reason: "*"`},
		{"channel error; reply-code=406, reply-text=PRECONDITION_FAILED - delivery tag 17", "channel error; reply-code=406, reply-text=PRECONDITION_FAILED - delivery tag *"},
		{`pika.exceptions.ChannelClosedByBroker: (404, "NOT_FOUND - no exchange 'x17'")`, `pika.exceptions.ChannelClosedByBroker: (404, "*")`},
		{"Error: Channel closed by server: 404 (NOT-FOUND) with message \"17\"", "Error: Channel closed by server: 404 (NOT-FOUND) with message \"*\""},

		// A code within quotation marks stays.
		{`step 3 failed: "exit status 5: order 17"`, `step * failed: "exit status 5: order *"`},

		// These numbers are not codes.
		{"order 404 not found", "order * not found"},
		{"dial tcp 10.0.0.7:503: connection refused", "dial tcp *: connection refused"},
		{"listen on port 503 of 8080", "listen on port * of *"},
		{"zip code: 10115", "zip code: *"},
		{"error 17 times in a row", "error * times in a row"},
		{"product SKU-42 is gone", "product SKU-* is gone"},
		{"error code 1234567890", "error code *"},
	} {
		if got := failed.Fingerprint(c.err); got != c.want {
			t.Errorf("%q: got %q, want %q", c.err, got, c.want)
		}
	}
}
