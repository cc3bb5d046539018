package hf

import (
	"fmt"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
)

// reader translates config.json.
type reader struct {
	*settings.Model
	errs []error
}

// object takes key, an object or absent.
func (r *reader) object(key string) map[string]any {
	v := r.Values.Take(key)
	m, ok := family.Object(v)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected an object", family.Show(v))
	}
	return m
}

// flag takes key, true, false or absent.
func (r *reader) flag(key string) bool {
	v := r.Values.Take(key)
	b, ok := v.(bool)
	if v != nil && !ok {
		r.errorf(key, "is %s, expected true or false", family.Show(v))
	}
	return b
}

// file returns the view of the file for a family's hook.
func (r *reader) file() *family.File {
	return &family.File{Spelling: r.Spelling,
		Report: func(key, format string, args ...any) { r.errorf(r.Key(key), format, args...) }}
}

func (r *reader) errorf(key, format string, args ...any) {
	r.errs = append(r.errs,
		settings.NewError(key, fmt.Sprintf("config.json: key %s %s", key, fmt.Sprintf(format, args...))))
}
