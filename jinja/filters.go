package jinja

import (
	"math"
	"math/big"
	"strconv"
)

// A filter is a function for v | name(arguments). The lazy ones look at the
// template's context, so their results are never constants.
type filter struct {
	fn   func(m *machine, v Value, a *args) (Value, error)
	lazy bool
}

// filters are Jinja2's, which setFilters sets: some of them call others by name.
var filters map[string]filter

func setFilters() {
	filters = map[string]filter{
		"abs":            {fn: takes("abs", "", filterAbs)},
		"attr":           {fn: takes("attr", "name", filterAttr)},
		"batch":          {fn: filterBatch},
		"capitalize":     {fn: textFilter("capitalize", capitalize)},
		"center":         {fn: takes("center", "width?", filterCenter)},
		"count":          {fn: takes("len", "", filterLength)},
		"d":              {fn: takes("default", "default_value? boolean?", filterDefault)},
		"default":        {fn: takes("default", "default_value? boolean?", filterDefault)},
		"dictsort":       {fn: takes("dictsort", "case_sensitive? by? reverse?", filterDictsort)},
		"e":              {fn: takes("escape", "", filterEscape)},
		"escape":         {fn: takes("escape", "", filterEscape)},
		"filesizeformat": {fn: takes("filesizeformat", "binary?", filterFileSize)},
		"first":          {fn: takes("first", "", filterFirst)},
		"float":          {fn: takes("float", "default?", filterFloat)},
		"forceescape":    {fn: takes("forceescape", "", filterForceEscape)},
		"format":         {fn: filterFormat},
		"groupby":        {fn: takes("groupby", "attribute default? case_sensitive?", filterGroupBy)},
		"indent":         {fn: takes("indent", "width? first? blank?", filterIndent)},
		"int":            {fn: takes("int", "default? base?", filterInt)},
		"items":          {fn: filterItems},
		"join":           {fn: takes("join", "d? attribute?", filterJoin)},
		"last":           {fn: takes("last", "", filterLast)},
		"length":         {fn: takes("len", "", filterLength)},
		"list":           {fn: takes("list", "", filterList)},
		"lower":          {fn: textFilter("lower", lower)},
		"map":            {fn: filterMap, lazy: true},
		"max":            {fn: extreme("max", ">")},
		"min":            {fn: extreme("min", "<")},
		"pprint":         {fn: missingFilter("pprint"), lazy: true},
		"random":         {fn: missingFilter("random"), lazy: true},
		"reject":         {fn: selector(false, false), lazy: true},
		"rejectattr":     {fn: selector(false, true), lazy: true},
		"replace":        {fn: takes("replace", "old new count?", filterReplace)},
		"reverse":        {fn: takes("reverse", "", filterReverse)},
		"round":          {fn: takes("round", "precision? method?", filterRound)},
		"safe":           {fn: takes("safe", "", filterSafe)},
		"select":         {fn: selector(true, false), lazy: true},
		"selectattr":     {fn: selector(true, true), lazy: true},
		"slice":          {fn: filterSlice},
		"sort":           {fn: takes("sort", "reverse? case_sensitive? attribute?", filterSort)},
		"string":         {fn: takes("string", "", filterString)},
		"striptags":      {fn: takes("striptags", "", filterStripTags)},
		"sum":            {fn: takes("sum", "attribute? start?", filterSum)},
		"title":          {fn: takes("title", "", filterTitle)},
		"tojson":         {fn: takes("tojson", "ensure_ascii? indent? separators? sort_keys?", filterTojson)},
		"trim":           {fn: takes("trim", "chars?", filterTrim)},
		"truncate":       {fn: takes("truncate", "length? killwords? end? leeway?", filterTruncate)},
		"unique":         {fn: filterUnique},
		"upper":          {fn: textFilter("upper", upper)},
		"urlencode":      {fn: takes("urlencode", "", filterURLEncode)},
		"urlize":         {fn: missingFilter("urlize"), lazy: true},
		"wordcount":      {fn: takes("wordcount", "", filterWordCount)},
		"wordwrap":       {fn: missingFilter("wordwrap"), lazy: true},
		"xmlattr":        {fn: takes("xmlattr", "autospace?", filterXMLAttr)},
	}
}

// filter is v | name(a).
func (m *machine) filter(name string, v Value, a *args) (Value, error) {
	f, ok := filters[name]
	if !ok {
		return nil, errorf(KindRuntime, "No filter named '%s' found.", name)
	}
	if err := m.step(1); err != nil {
		return nil, err
	}
	m.watchArgs(v, a)
	return f.fn(m, v, a)
}

// missingFilter is one of Jinja2's that no chat template needs.
func missingFilter(name string) func(*machine, Value, *args) (Value, error) {
	return func(*machine, Value, *args) (Value, error) {
		return nil, errorf(KindRuntime, "the filter '%s' is not supported", name)
	}
}

// orNone is v, or None without one.
func orNone(v Value) Value {
	if v == nil {
		return None
	}
	return v
}

func filterAbs(m *machine, v Value, _ []Value) (Value, error) {
	n, ok := numberOf(v)
	switch {
	case !ok:
		return nil, typeError("bad operand type for abs(): '%s'", v.kind())
	case n.isFloat:
		return float(math.Abs(n.f)), nil
	case n.i.sign() < 0:
		return m.intArith("-", integer{}, n.i)
	}
	return n.i, nil
}

func filterAttr(m *machine, v Value, p []Value) (Value, error) {
	name, err := m.str(p[0])
	if err != nil {
		return nil, err
	}
	x, l, err := m.attribute(v, name.s)
	switch {
	case err != nil:
		return nil, err
	case l == found:
		return x, nil
	case l == denied:
		return unsafe(v, name.s), nil
	}
	return &undefined{owner: v, name: name}, nil
}

func filterLength(m *machine, v Value, _ []Value) (Value, error) {
	if l, ok := v.(*loop); ok {
		n, err := l.length()
		return Int(int64(n)), err
	}
	n, err := m.mustSize(v)
	return Int(int64(n)), err
}

func filterDefault(m *machine, v Value, p []Value) (Value, error) {
	if p[0] == nil {
		p[0] = str{}
	}
	if _, ok := v.(*undefined); ok {
		return p[0], nil
	}
	if falsy, err := m.flag(p[1]); err != nil || !falsy {
		return v, err
	}
	ok, err := m.truth(v)
	if !ok {
		v = p[0]
	}
	return v, err
}

func filterInt(m *machine, v Value, p []Value) (Value, error) {
	other := p[0]
	if other == nil {
		other = Int(0)
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if n, ok := numberOf(v); ok {
		switch {
		case !n.isFloat:
			return n.i, nil
		case math.IsNaN(n.f):
			return other, nil
		}
		return truncate(n.f)
	}
	s, ok := v.(str)
	if !ok {
		return other, nil
	}
	base, err := intArg(p[1], 10)
	if err == nil {
		if err := m.step(len(s.s) / 4); err != nil {
			return nil, err
		}
		if i, err := parseInt(s.s, base); err == nil {
			return i, nil
		}
	}
	f, ok := parseFloat(s.s)
	if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
		return other, nil
	}
	return truncate(f)
}

func filterFloat(m *machine, v Value, p []Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if n, ok := numberOf(v); ok {
		f, err := n.float()
		return float(f), err
	}
	if s, ok := v.(str); ok {
		if err := m.step(len(s.s) / 4); err != nil {
			return nil, err
		}
		if f, ok := parseFloat(s.s); ok {
			return float(f), nil
		}
	}
	if p[0] == nil {
		return float(0), nil
	}
	return p[0], nil
}

func filterRound(m *machine, v Value, p []Value) (Value, error) {
	method := "common"
	if p[1] != nil {
		s, ok := p[1].(str)
		if method = s.s; !ok || method != "common" && method != "ceil" && method != "floor" {
			return nil, errorf(KindRuntime, "method must be common, ceil or floor")
		}
	}
	if p[0] == nil {
		p[0] = Int(0)
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	n, ok := numberOf(v)
	if !ok {
		return nil, typeError("type %s doesn't define __round__ method", v.kind())
	}
	if method != "common" {
		return m.roundUp(n, p[0], method == "ceil")
	}
	if p[0] == None {
		if n.isFloat {
			return truncate(math.RoundToEven(n.f))
		}
		return n.i, nil
	}
	digits, err := indexOf(p[0])
	if err != nil {
		return nil, err
	}
	return m.round(n, digits)
}

// round is round(n, digits), with ties to even.
func (m *machine) round(n number, digits int) (Value, error) {
	if n.isFloat {
		f := n.f
		switch {
		case math.IsInf(f, 0) || math.IsNaN(f) || digits > 330:
			return float(f), nil
		case digits >= 0:
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
			return float(f), nil
		case digits < -330:
			return float(math.Copysign(0, f)), nil
		}
		r, _ := new(big.Rat).SetFloat64(f), 0
		i := roundRat(r, -digits)
		g, _ := new(big.Float).SetInt(i).Float64()
		if math.IsInf(g, 0) {
			return nil, valueError("rounded value too large to represent")
		}
		if g == 0 {
			g = math.Copysign(0, f)
		}
		return float(g), nil
	}
	if digits >= 0 {
		return n.i, nil
	}
	if digits < -maxIntDigits*5 {
		return Int(0), nil
	}
	return m.bounded(roundRat(new(big.Rat).SetInt(n.i.wide()), -digits))
}

// roundRat rounds to a multiple of 10**zeros, ties to even.
func roundRat(r *big.Rat, zeros int) *big.Int {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(zeros)), nil)
	num := new(big.Int).Set(r.Num())
	den := new(big.Int).Mul(r.Denom(), unit)
	quo, rem := new(big.Int).DivMod(num, den, new(big.Int))
	switch rem.Lsh(rem, 1).Cmp(den) {
	case 1:
		quo.Add(quo, big.NewInt(1))
	case 0:
		quo.Add(quo, big.NewInt(int64(quo.Bit(0))))
	}
	return quo.Mul(quo, unit)
}

// roundUp is ceil or floor of n * 10**precision, over 10**precision.
func (m *machine) roundUp(n number, precision Value, up bool) (Value, error) {
	d, ok := numberOf(precision)
	if !ok {
		return nil, typeError("unsupported operand type(s) for ** or pow(): 'int' and '%s'", precision.kind())
	}
	unit, err := m.power(number{i: integer{small: 10}}, d)
	if err != nil {
		return nil, err
	}
	u, _ := numberOf(unit)
	scaled, err := m.arith("*", n, u)
	if err != nil {
		return nil, err
	}
	s, _ := numberOf(scaled)
	if s.isFloat {
		f := math.Floor(s.f)
		if up {
			f = math.Ceil(s.f)
		}
		if s.i, err = truncate(f); err != nil {
			return nil, err
		}
	}
	return divide(number{i: s.i}, u)
}

func filterFileSize(m *machine, v Value, p []Value) (Value, error) {
	binary, err := m.flag(p[0])
	if err != nil {
		return nil, err
	}
	n, ok := numberOf(v)
	size, err := n.float()
	if s, isText := v.(str); isText {
		size, ok = parseFloat(s.s)
	}
	if !ok || err != nil || math.IsNaN(size) {
		return nil, valueError("could not convert '%s' to float", v.kind())
	}
	base, last := 1000.0, "B"
	prefixes := []string{"k", "M", "G", "T", "P", "E", "Z", "Y"}
	if binary {
		base, last = 1024, "iB"
		prefixes[0] = "K"
	}
	switch {
	case size == 1:
		return plain("1 Byte"), nil
	case size < base:
		return plain(strconv.FormatFloat(math.Trunc(size), 'f', 0, 64) + " Bytes"), nil
	}
	unit := base
	for i, prefix := range prefixes {
		if unit *= base; size < unit || i == len(prefixes)-1 {
			return plain(strconv.FormatFloat(base*size/unit, 'f', 1, 64) + " " + prefix + last), nil
		}
	}
	return nil, nil
}
