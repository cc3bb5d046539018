package jinja

import (
	"errors"
	"fmt"
)

// A Kind says what sort of mistake an Error reports. Where Python has a class
// of exceptions for it, the kind stands for that class.
type Kind uint8

const (
	KindSyntax    Kind = iota + 1 // the source is not a template
	KindRaised                    // the template called a function that returned Raise(...)
	KindUndefined                 // an undefined value was used
	KindType                      // an operation does not fit its operands
	KindValue                     // a value is out of its range; overflow and division by zero too
	KindLookup                    // a missing key or index
	KindAttribute                 // a missing attribute where one is required
	KindRuntime                   // everything else that Jinja2 itself refuses
	KindSecurity                  // an attribute that the sandbox denies
	KindLimit                     // one of the Options' limits was reached
	KindCanceled                  // the context was done; Unwrap gives its error
)

var kindNames = [...]string{
	KindSyntax: "syntax error", KindRaised: "raised by the template", KindUndefined: "undefined",
	KindType: "type error", KindValue: "value error", KindLookup: "lookup error",
	KindAttribute: "attribute error", KindRuntime: "template error", KindSecurity: "denied",
	KindLimit: "limit", KindCanceled: "canceled",
}

// String names the kind in words.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An Error is every error of this package but those of DecodeJSON and Vars.
type Error struct {
	Kind    Kind
	Line    int    // of the template, from 1; 0 if unknown
	Message string // as Jinja2 words it, where it has words; of Raise, exactly its argument
	cause   error
}

// Error gives the line, the kind and the message.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Unwrap returns the context's error of KindCanceled, or what a host function
// returned.
func (e *Error) Unwrap() error { return e.cause }

// Raise makes the error with which a host function stops a template on purpose,
// as transformers' raise_exception does.
func Raise(message string) error { return &Error{Kind: KindRaised, Message: message} }

// at adds the line to an error, if there is one and it has no line yet.
func at(err error, line int) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Kind: KindRuntime, Line: line, Message: err.Error(), cause: err}
	}
	if e.Line == 0 {
		e.Line = line
	}
	return e
}

// is reports whether err is one of the kinds: Python's except clause.
func is(err error, kinds ...Kind) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, k := range kinds {
		if e.Kind == k {
			return true
		}
	}
	return false
}

func errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

func typeError(format string, args ...any) error   { return errorf(KindType, format, args...) }
func valueError(format string, args ...any) error  { return errorf(KindValue, format, args...) }
func lookupError(format string, args ...any) error { return errorf(KindLookup, format, args...) }
