package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/lab/diagnose"
)

// The parts of JUnit's XML, in the order of its schema.
type (
	testSuites struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Package    string     `xml:"package,attr"`
		ID         int        `xml:"id,attr"`
		Name       string     `xml:"name,attr"`
		Timestamp  string     `xml:"timestamp,attr"`
		Hostname   string     `xml:"hostname,attr"`
		Tests      int        `xml:"tests,attr"`
		Failures   int        `xml:"failures,attr"`
		Errors     int        `xml:"errors,attr"`
		Time       string     `xml:"time,attr"`
		Properties []property `xml:"properties>property"`
		Cases      []testCase `xml:"testcase"`
		Out        string     `xml:"system-out"`
		Err        string     `xml:"system-err"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Time    string   `xml:"time,attr"`
		Failure *failure `xml:"failure"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a diagnosis as JUnit's XML: a test case for the verdict, and one for
// the equations of each operation in each layer, whose failures carry the findings.
func JUnit(w io.Writer, d *diagnose.Diagnosis) error {
	seconds := d.Seconds
	if !(seconds >= 0 && seconds < 1e9) {
		seconds = 0 // the schema has no other numbers
	}
	s := testSuite{
		Package: "karat.lab", Name: "karat lab diagnose", Hostname: "localhost",
		Timestamp:  time.Now().UTC().Format("2006-01-02T15:04:05"),
		Time:       fmt.Sprintf("%.3f", seconds),
		Properties: []property{{"model", base(d.Model)}, {"dump", base(d.Dump)}, {"verdict", name(string(d.Verdict))}},
		Cases:      append([]testCase{verdictCase(d)}, equationCases(d)...),
	}
	s.Tests, s.Err = len(s.Cases), strings.Join(sentences(d.Errors), "\n")
	for i := range s.Cases {
		s.Cases[i].Time = "0"
		if s.Cases[i].Failure != nil {
			s.Failures++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(testSuites{Suites: []testSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// verdictCase fails, with the whole text, if the verdict is one to act on.
func verdictCase(d *diagnose.Diagnosis) testCase {
	c := testCase{Name: "verdict", Class: "karat.lab.verdict"}
	if !Passed(d) {
		var b strings.Builder
		Text(&b, d, Terminal{}) // to a strings.Builder, which takes everything
		message := headline(d)
		if isRight(d.Verdict) {
			message = d.Errors[0]
		}
		c.Failure = &failure{Message: name(string(d.Verdict)) + ": " + message, Type: name(string(d.Verdict)),
			Text: b.String()}
	}
	return c
}

// equationCases groups the equations by operation and layer, in the order of the graph.
func equationCases(d *diagnose.Diagnosis) (cases []testCase) {
	type group struct {
		op    string
		layer int
	}
	var order []group
	curves := map[group][]*diagnose.Curve{}
	for i := range d.Curves {
		c := &d.Curves[i]
		g := group{c.Op, c.Layer}
		if curves[g] == nil {
			order = append(order, g)
		}
		curves[g] = append(curves[g], c)
	}
	for _, g := range order {
		where, in := "outside the layers", []int(nil)
		if g.layer >= 0 {
			where, in = fmt.Sprintf("layer %d", g.layer), []int{g.layer}
		}
		c := testCase{Name: name(g.op) + ", " + where, Class: "karat.lab.equations"}
		if !Passed(d) {
			c.Failure = broken(d, g.op, in, curves[g])
		}
		cases = append(cases, c)
	}
	return cases
}

// broken returns the failure of a group of equations, nil if the equations hold.
func broken(d *diagnose.Diagnosis, op string, in []int, curves []*diagnose.Curve) *failure {
	curves = slices.DeleteFunc(slices.Clone(curves), func(c *diagnose.Curve) bool { return !c.Flagged })
	if len(curves) == 0 {
		return nil
	}
	var b strings.Builder
	for _, c := range curves[:min(len(curves), maxList)] {
		fmt.Fprintf(&b, "%s: residual %s, floor %s\n", name(c.Tap), number(c.Residual), number(c.Floor))
	}
	if more := others(len(curves), "equation"); more != "" {
		b.WriteString(more + "\n")
	}
	p, message := printer{}, "the equation does not hold"
	for i := range d.Findings[:min(len(d.Findings), maxList)] {
		f := &d.Findings[i]
		about := slices.ContainsFunc(curves, func(c *diagnose.Curve) bool {
			return c.Tap == f.Tap || slices.Contains(c.Causes, f.Cause)
		})
		if !about || (len(in) > 0 && !slices.Contains(f.Layers, in[0])) {
			continue
		}
		if p.b.Len() == 0 {
			message = name(f.Cause) + ": " + sentence(f.Computed)
		}
		p.finding(d, i)
	}
	if more := others(len(d.Findings), "finding"); more != "" {
		p.para("", "", more)
	}
	return &failure{Message: message, Type: name(op), Text: b.String() + p.b.String()}
}
