package server

import (
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// uploadLimit is how long a file may take to arrive.
const uploadLimit = 10 * time.Minute

// maxFilename bounds the names of files, in bytes; names are only shown.
const maxFilename = 255

// uploadFile answers POST /v1/files.
func uploadFile(x *exchange) any {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return refuse(http.StatusUnsupportedMediaType, "", "", "Content-Type is not multipart/form-data")
	}
	x.from.limit = uploadLimit
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, maxFile+1<<20)
	parts, err := x.r.MultipartReader()
	if err != nil {
		return bad("", "The body is not multipart/form-data")
	}
	f, t := x.s.newFile(newID("file-"), "", "", x.who.name), x.s.store
	room := int64(maxFile) // the file's, until its size is known
	if n := x.r.ContentLength; n >= 0 {
		room = min(room, n)
	}
	throw(t.reserve(f.owner, 1, room, x.s.now()))
	kept := false // a kept file may be gone by the end, and its room given back
	defer func() {
		if !kept {
			t.root.Remove(f.ID + ".data") // data of a file unknown to all
			t.release(f.owner, 1, room)
		}
	}()
	if !x.receive(f, parts) {
		return bad("file", "Missing required parameter: 'file'")
	}
	switch {
	case f.Purpose == "":
		return bad("purpose", "Missing required parameter: 'purpose'")
	case f.Purpose != "batch":
		return bad("purpose", "Invalid value for 'purpose': %.64q, want batch", f.Purpose)
	}
	t.bytes.give(f.owner, room-f.Bytes)
	room = f.Bytes
	if err := t.add(f); err != nil {
		return x.s.explain(x.ctx, err)
	}
	kept = true
	return f
}

// receive reads the parts of an upload, and reports whether a file was there.
func (x *exchange) receive(f *storedFile, parts *multipart.Reader) (there bool) {
	for purpose := false; ; {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return there
		}
		if err != nil {
			throw(uploadProblem(err))
		}
		switch name := part.FormName(); {
		case name == "purpose" && !purpose:
			purpose = true
			text, err := io.ReadAll(io.LimitReader(part, 65))
			if err != nil {
				throw(uploadProblem(err))
			}
			f.Purpose = string(text)
		case name == "file" && !there:
			if f.Filename = part.FileName(); len(f.Filename) > maxFilename {
				throw(bad("file", "Invalid value for 'file': its name has %d bytes, at most %d", len(f.Filename),
					maxFilename))
			}
			if f.Bytes, err = x.s.store.receive(f.ID, part); err != nil {
				if errors.Is(err, errLarge) {
					throw(uploadProblem(&http.MaxBytesError{Limit: maxFile}))
				}
				throw(uploadProblem(err))
			}
			there = true
		case name == "purpose" || name == "file":
			throw(bad(name, "Invalid value for '%s': the field is there twice", name))
		default:
			throw(unknownField(name))
		}
	}
}

// uploadProblem returns the problem of an incomplete upload.
func uploadProblem(err error) *problem {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "", "file", "The file has more than %d bytes", large.Limit)
	}
	if own := (*fs.PathError)(nil); errors.As(err, &own) {
		return internal("The server could not keep the file")
	}
	return bodyProblem(err)
}

// file returns the file of a path.
func (x *exchange) file() *storedFile {
	id := x.r.PathValue("id")
	if f := x.s.store.find(id, x.who.name); f != nil {
		return f
	}
	panic(noThing("file", id))
}

func noThing(kind, id string) *problem {
	return refuse(http.StatusNotFound, "not_found", "id", "No such %s: %.64q", kind, id)
}

func showFile(x *exchange) any {
	f := x.file()
	return f
}

func deleteFile(x *exchange) any {
	f := x.file()
	busy, err := x.s.store.remove(f)
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	if busy {
		return refuse(http.StatusConflict, "in_use", "id", "A batch reads the file")
	}
	return map[string]any{"id": f.ID, "object": "file", "deleted": true}
}

// sendFile answers GET /v1/files/ID/content.
func sendFile(x *exchange) any {
	f := x.file()
	data, err := x.s.store.root.Open(f.ID + ".data")
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	defer data.Close()
	x.w.Header().Set("Content-Type", "application/octet-stream")
	x.w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	c := http.NewResponseController(x.w)
	buffer := make([]byte, 64<<10)
	for {
		n, err := data.Read(buffer)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		c.SetWriteDeadline(time.Now().Add(writeLimit)) // a writer without deadlines writes without a deadline
		if _, err := x.w.Write(buffer[:n]); err != nil {
			return nil // the client has gone
		}
	}
}

// listed is a part of a list.
type listed[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
}

// page returns a query's part of a list, by after, limit and order.
func page[T any](x *exchange, all []T, id func(T) string, most int) (list listed[T]) {
	q := x.r.URL.Query()
	limit := most
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			throw(bad("limit", "Invalid value for 'limit': %.32q, want 1 to %d", text, most))
		}
		limit = n
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		slices.Reverse(all)
	default:
		throw(bad("order", "Invalid value for 'order': %.32q, want asc, desc", order))
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return id(v) == after })
		if i < 0 {
			throw(bad("after", "Invalid value for 'after': there is no %.64q", after))
		}
		all = all[i+1:]
	}
	list = listed[T]{Object: "list", Data: append([]T{}, all[:min(limit, len(all))]...), More: len(all) > limit}
	if n := len(list.Data); n > 0 {
		list.First, list.Last = nullable(id(list.Data[0])), nullable(id(list.Data[n-1]))
	}
	return list
}

func listFiles(x *exchange) any {
	list := page(x, x.s.store.files(x.who.name, strings.TrimSpace(x.r.URL.Query().Get("purpose"))),
		func(f *storedFile) string { return f.ID }, maxStored)
	return x.replyLarge(list)
}
