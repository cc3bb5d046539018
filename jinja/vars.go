package jinja

import (
	"fmt"
	"maps"
	"slices"
)

// Vars makes a dict of Go values, for Execute. A value is nil, a bool, int, int64,
// float64, string, []any, map[string]any (sorted by key: build a Dict where the order
// counts) or a Value; any other is an error. Structs go through encoding/json and
// DecodeJSON.
func Vars(values map[string]any) (*Dict, error) {
	v, err := valueOf(values, 0)
	if err != nil {
		return nil, err
	}
	return v.(*Dict), nil
}

func valueOf(x any, depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("vars: nested deeper than %d", maxJSONDepth)
	}
	switch x := x.(type) {
	case Value:
		return x, nil
	case nil:
		return None, nil
	case bool:
		return Bool(x), nil
	case int:
		return Int(int64(x)), nil
	case int64:
		return Int(x), nil
	case float64:
		return Float(x), nil
	case string:
		return String(x), nil
	case []any:
		items := make([]Value, len(x))
		for i, y := range x {
			v, err := valueOf(y, depth+1)
			if err != nil {
				return nil, err
			}
			items[i] = v
		}
		return List(items...), nil
	case map[string]any:
		d := NewDict()
		for _, name := range slices.Sorted(maps.Keys(x)) {
			v, err := valueOf(x[name], depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(name, v)
		}
		return d, nil
	}
	return nil, fmt.Errorf("vars: a %T is no value of a template", x)
}
