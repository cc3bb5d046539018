// Package report writes a diagnosis for its readers: as text for a terminal,
// as one HTML page that can be mailed, as Markdown, and as JUnit's XML for CI.
//
// Names, texts and numbers of a diagnosis come from a stranger's dump. Whatever they
// are, each form stays well-formed, and all but the JSON have a bounded size.
package report
