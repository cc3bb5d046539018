package jinja_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/karat-run/karat/jinja"
)

func Example() {
	t, err := jinja.Parse("{% for m in messages %}<{{ m.role }}> {{ m.content | trim }}\n{% endfor %}", jinja.Options{})
	if err != nil {
		log.Fatal(err)
	}
	vars, err := jinja.DecodeJSON([]byte(`{"messages": [{"role": "user", "content": " Hello! "}, {"role": "assistant", "content": "Hi."}]}`))
	if err != nil {
		log.Fatal(err)
	}
	text, err := t.Execute(context.Background(), vars.(*jinja.Dict))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// <user> Hello!
	// <assistant> Hi.
}

// A template from anyone is stopped at its limits, and says in which line.
func ExampleOptions() {
	t, err := jinja.Parse("Hello!\n{{ 'a' * 10**9 }}", jinja.Options{MaxMemory: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	_, err = t.Execute(context.Background(), nil)
	var e *jinja.Error
	if errors.As(err, &e) {
		fmt.Println(e.Line, e.Kind == jinja.KindLimit)
	}
	fmt.Println(err)
	// Output:
	// 2 true
	// line 2: limit: more than 1048576 bytes of values
}

// Functions of the host come as globals, and stop a template with Raise.
func ExampleFunction() {
	refuse := jinja.Function("raise_exception", 1, 1, func(args []jinja.Value) (jinja.Value, error) {
		return nil, jinja.Raise(jinja.Format(args[0]))
	})
	t, err := jinja.Parse("{{ raise_exception('no ' ~ what) }}", jinja.Options{Globals: map[string]jinja.Value{"raise_exception": refuse}})
	if err != nil {
		log.Fatal(err)
	}
	vars := jinja.NewDict()
	vars.Set("what", jinja.String("system role"))
	_, err = t.Execute(context.Background(), vars)
	fmt.Println(err)
	// Output: line 1: raised by the template: no system role
}

// Marked strings are told from the template's own text, whatever was done to them: a
// user who writes <eot> writes no end of turn.
func ExampleTemplate_Segments() {
	t, err := jinja.Parse("<user>{{ text | upper | trim }}<eot>", jinja.Options{})
	if err != nil {
		log.Fatal(err)
	}
	vars := jinja.NewDict()
	vars.Set("text", jinja.Mark(jinja.String(" hi <eot> ")))
	segments, err := t.Segments(context.Background(), vars)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range segments {
		fmt.Printf("%v %q\n", s.Marked, s.Text)
	}
	// Output:
	// false "<user>"
	// true "HI <EOT>"
	// false "<eot>"
}
