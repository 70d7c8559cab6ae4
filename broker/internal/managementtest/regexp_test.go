package managementtest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// expressionNames are the names of the queues that the expressions in these tests match.
var expressionNames = []string{
	"a", "aaa", "ab", "aab", "abb", "abab", "a.b", "amq-x", "A-b", "b", "c", "abc", "cab", "8", "K", "_", "x y", "tab\t", "ff\f", "]", "a{1", "café",
	"ª", "Å", "×", "nb\u00a0", "éé", "order-2024", "order-9999",
}

// expressions maps expressions, without the case of letters, to the names that they match, or to nil for invalid
// expressions. RabbitMQ refuses invalid expressions in permissions, and shows an empty list for them.
var expressions = map[string][]string{
	`^(?!amq[.-]).*b$`:             {"ab", "aab", "abb", "abab", "a.b", "A-b", "b", "cab"},
	`(?<=a)b$`:                     {"ab", "aab", "abab", "cab"},
	`(?<!a)b$`:                     {"abb", "a.b", "A-b", "b"},
	`(?<=a{2,3})b`:                 {"aab"},
	`(?<=a+)b`:                     nil,
	`^(.+)\1$`:                     {"abab", "éé"},
	`^(?<x>a)\k<x>`:                {"aaa", "aab"},
	`^(?P<x>a)(?P=x)`:              {"aaa", "aab"},
	`^a++b`:                        {"ab", "aab", "abb", "abab", "abc"},
	`^a*+a`:                        {},
	`^(?>a|ab)c`:                   {},
	`\h$`:                          {"tab\t", "nb\u00a0"},
	`\R`:                           {"ff\f", "Å"},
	`\v`:                           {"ff\f", "Å"},
	`^\d{4,2000}$`:                 {},
	`-\d{4}$`:                      {"order-2024", "order-9999"},
	`a{65535}`:                     {},
	`a{65536}`:                     nil,
	`^..$`:                         {"ab", "ª", "Å", "×"},
	`.*b.*`:                        {"ab", "aab", "abb", "abab", "a.b", "A-b", "b", "abc", "cab", "tab\t", "nb\u00a0"},
	`.*?c|.*\.b`:                   {"a.b", "abc", "c", "cab", "café"},
	`.*+b`:                         {},
	`(*UTF)^..$`:                   {"ab", "éé"},
	`^\w$`:                         {"a", "b", "c", "8", "K", "_"},
	`(?-i)[[:upper:]]`:             {"A-b", "K"},
	`^(?-i)a.b$`:                   {"aab", "abb", "a.b"},
	`^(a|b(?1))+$`:                 {"a", "aaa"},
	`^(a(?1)?b)$`:                  {"ab"},
	`^(?|(a)|(b))\1`:               {"aaa", "aab"},
	`^(a)?(?(1)b|K)$`:              {"ab", "K"},
	`(?x) ^ a \.  b # comment`:     {"a.b"},
	`^\Qa.b\E$`:                    {"a.b"},
	`^a\x2eb$`:                     {"a.b"},
	`^[]]$`:                        {"]"},
	`^a{1$`:                        {"a{1"},
	`^(a+)+(a+)+(a+)+(a+)+(a+)+$x`: {},
	`a*(?#possessive)+b`:           {"ab", "aab", "abb", "abab", "a.b", "A-b", "b", "abc", "cab", "tab\t", "nb\u00a0"},
	`^[\w-]++(?<!-9999)$`:          {"a", "aaa", "ab", "aab", "abb", "abab", "amq-x", "A-b", "b", "c", "abc", "cab", "8", "K", "_", "order-2024"},
	`(`:                            nil,
	`a)`:                           nil,
	`*a`:                           nil,
	`a**`:                          nil,
	`[b-a]`:                        nil,
	`[[:letter:]]`:                 nil,
	`\1`:                           nil,
	`(?<x>a)(?<x>b)`:               nil,
	`\p{Klingon}`:                  nil,
	`a\`:                           nil,
	`ab(?<=(?1))|x((?2))(b)`:       {"ab", "aab", "abb", "abab", "abc", "cab", "tab\t"},
	`(?<=a{65536})b`:               nil,
	`(?<=(?:a{300}){300})b`:        nil,
}

// queuesFor declares the queues in expressionNames, and returns a function that returns the names that an expression
// matches, without the case of letters, and whether it is valid as a permission.
func (b *target) queuesFor(t *testing.T) func(expression string) (names []string, valid bool) {
	vhost := url.PathEscape(b.vhost(t))
	for _, name := range expressionNames {
		b.must(t, "PUT", "/api/queues/"+vhost+"/"+url.PathEscape(name), `{"durable":true}`)
	}
	return func(expression string) (names []string, valid bool) {
		permission, err := json.Marshal(map[string]string{"configure": expression, "write": ".*", "read": ".*"})
		if err != nil {
			t.Fatal(err)
		}
		status, text := b.call(t, "PUT", "/api/permissions/"+vhost+"/guest", string(permission))
		if status/100 != 2 && status != 400 {
			t.Fatalf("permission %q: %d %s", expression, status, text)
		}
		var page struct{ Items []struct{ Name string } }
		text = b.must(t, "GET", "/api/queues/"+vhost+"?page=1&use_regex=true&columns=name&name="+url.QueryEscape(expression), "")
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		slices.Sort(names)
		return names, status != 400
	}
}

// Regular expressions in permissions and list filters have the syntax and the meaning of PCRE2.
func TestRegularExpressions(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		find := b.queuesFor(t)
		for expression, want := range expressions {
			slices.Sort(want)
			if got, valid := find(expression); !slices.Equal(got, want) || valid != (want != nil) {
				t.Errorf("%s\ngot  %q, valid %v\nwant %q, valid %v", expression, got, valid, want, want != nil)
			}
		}
	})
}

// expressionParts are parts of random expressions.
var expressionParts = strings.Split(`a b ab . .* .* .*? ^ $ \b \B \w \W \d \s \h \v \R \N [ab] [^a] [a-c] [[:alpha:]] [\w.-] [\d-] \. - | | | * + ? {2} {1,2} {0,} {,1} {1 ++ *+ ?+ *? +? ?? `+
	`( ) (a) (b) (?:a|b) (?:ab)+ (a|ab) (?=a) (?!a) (?=.*b) (?<=a) (?<!b) (?<=a|bb) (?<!a{1,2}) (?> (?: ( ( ) ) ) (?i) (?-i) (?s) (?m) (?x) (?i:A) (?-i:A) `+
	`\1 \2 \g{1} \g{-1} \k<x> (?<x>a) (?<x>.) (?'y'b) (?P=x) (?1) (?2) (?R) (?&x) (?(1)a|b) (?(<x>)a|b) (?(?=a)ab|b) (?|(a)|(b)) (?#c) \Q.\E \x61 \x{62} \141 \K \A \z \Z \G é É x _ 8 A \pL \p{Lu} \PL ] } {`, " ")

// Every expression matches the same names as in RabbitMQ, or is invalid in both. As in TestImportVerdictsAreThoseOfRabbitMQ,
// other expressions are compared with another -rapid.seed.
func TestRegularExpressionsMatchAsInRabbitMQ(t *testing.T) {
	flags.Default(t, "rapid.seed", "1")
	theirs := rabbitMQ(t).queuesFor(t)
	ours := embedded(t, broker.Config{}).queuesFor(t)
	rapid.Check(t, func(r *rapid.T) {
		expression := strings.Join(rapid.SliceOfN(rapid.SampledFrom(expressionParts), 1, 9).Draw(r, "parts"), "")
		want, valid := theirs(expression)
		if got, ok := ours(expression); fmt.Sprint(got, ok) != fmt.Sprint(want, valid) {
			r.Fatalf("%s\ngot  %q, valid %v\nwant %q, valid %v", expression, got, ok, want, valid)
		}
	})
}
