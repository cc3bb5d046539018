package chat

import (
	"encoding/json"
	"fmt"

	"github.com/karat-run/karat/jinja"
)

// Args makes template variables of Go values, as JSON has them.
func Args(args map[string]any) (*jinja.Dict, error) {
	if len(args) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("template arguments: %w", err)
	}
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("template arguments: %w", err)
	}
	return v.(*jinja.Dict), nil
}
