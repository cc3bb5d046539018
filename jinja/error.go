package jinja

import (
	"errors"
	"fmt"
)

// A Kind classifies the mistake in an Error. Where Python has a class of exceptions for the mistake, the kind stands
// for that class.
type Kind uint8

const (
	KindSyntax      Kind = iota + 1 // the source is not a template
	KindRaised                      // the template called a function that returned Raise(...)
	KindUndefined                   // an undefined value was used
	KindType                        // an operation does not fit its operands
	KindValue                       // a value is out of its range; also division by zero
	KindRuntime                     // everything else that Jinja2 itself refuses
	KindSecurity                    // an attribute that the sandbox denies
	KindUnsupported                 // a feature of Jinja2 that is absent here
	KindLimit                       // a limit of the Options was reached
	KindCanceled                    // the context was done; Unwrap returns its error
)

var kindNames = [...]string{
	KindSyntax: "syntax error", KindRaised: "raised by the template", KindUndefined: "undefined",
	KindType: "type error", KindValue: "value error", KindRuntime: "template error", KindSecurity: "denied",
	KindUnsupported: "template error", KindLimit: "limit", KindCanceled: "canceled",
}

// String names the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An Error is every error of this package except the errors of DecodeJSON.
type Error struct {
	Kind    Kind
	Line    int    // line of the template, from 1; 0 if unknown
	Message string // Jinja2's words, where Jinja2 has words; for Raise exactly its argument
	cause   error
}

// Error gives the line, the kind and the message.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Unwrap returns the context's error for KindCanceled, or a host function's error.
func (e *Error) Unwrap() error { return e.cause }

// Raise makes the error for a host function that stops a template on purpose, as transformers' raise_exception does.
func Raise(message string) error { return &Error{Kind: KindRaised, Message: message} }

// Inside the package an error is a panic with an *Error, which Parse and Execute catch: every operation of the
// language can fail, at any depth, and none goes on after a failure.

func errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

func typeError(format string, args ...any) *Error  { return errorf(KindType, format, args...) }
func valueError(format string, args ...any) *Error { return errorf(KindValue, format, args...) }
func limitError(format string, args ...any) *Error { return errorf(KindLimit, format, args...) }

// unsupported makes the error for features of Jinja2 that are absent here.
func unsupported(format string, args ...any) *Error {
	return errorf(KindUnsupported, format+" is not supported", args...)
}

// catch stores the *Error of a panic in err, with the line where the error has none. Any other panic goes on.
func catch(err *error, line *int) {
	switch e := recover().(type) {
	case nil:
	case *Error:
		if e.Line == 0 {
			e.Line = *line
		}
		*err = e
	default:
		panic(e)
	}
}

// hostError turns the error of a host function into the error that stops the rendering.
func hostError(err error) *Error {
	if e, is := errors.AsType[*Error](err); is {
		own := *e
		return &own
	}
	return &Error{Kind: KindRuntime, Message: err.Error(), cause: err}
}
