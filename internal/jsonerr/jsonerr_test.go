package jsonerr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	type Inner struct {
		N int `json:"n"`
	}
	var x struct {
		Inner
		S map[string]string `json:"s"`
		B bool              `json:"b"`
		L []float32         `json:"l"`
	}
	for text, want := range map[string]string{
		`{"n": "x"}`:                  "n: a JSON string, want an integer (at byte 9)",
		`{"n": 98765432109876543210}`: "n: a JSON number 98765432109876543210, want an integer of 64 bits (at byte 26)",
		`{"n": 0.5}`:                  "n: a JSON number 0.5, want an integer (at byte 9)",
		`{"s": [1]}`:                  "s: a JSON array, want an object (at byte 7)",
		`{"b": 1}`:                    "b: a JSON number, want true or false (at byte 7)",
		`{"l": 1}`:                    "l: a JSON number, want a list (at byte 7)",
		`{"s": {"k": true}}`:          "s: a JSON bool, want a string (at byte 16)",
		`[1]`:                         "a JSON array, want an object (at byte 1)",
		`{"a":`:                       "no JSON at byte 5: it ends too early",
		`{a`:                          "no JSON at byte 2: invalid character 'a' looking for beginning of object key string",
	} {
		if err := Plain(json.Unmarshal([]byte(text), &x), "Inner."); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var seed struct {
		Seed uint64 `json:",string"`
	}
	if err := Plain(json.Unmarshal([]byte(`{"Seed":1}`), &seed), ""); err == nil || strings.Contains(err.Error(), "struct tag") {
		t.Error(err)
	}
	if other := errors.New("other"); Plain(other, "") != other || Plain(nil, "") != nil {
		t.Error("another error is changed")
	}
}

func TestUnmarshal(t *testing.T) {
	type inner struct {
		Bits int
		List []string
	}
	for text, want := range map[string]string{
		`{"bits": "4"}`:               `a.bits: "4" is no whole number`,
		`{"bits" : [ 4, {"x": 5} ]}`:  `a.bits: [ 4, {"x": 5} ] is no whole number`,
		`{"list": {}}`:                `a.list: {} is no list`,
		`{"list": ["a", 7, true]}`:    `a.list[1]: 7 is no string`,
		`{"in": {"bits": true}}`:      `a.in.bits: true is no whole number`,
		`{"of": [[], {"bits": 1.5}]}`: `a.of[0]: [] is no object`,
		`[1]`:                         `a: [1] is no object`,
		`{`:                           `a: unexpected end of JSON input`,
	} {
		var x struct {
			inner
			In inner
			Of []inner
		}
		if err := Unmarshal([]byte(text), &x, "a"); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
