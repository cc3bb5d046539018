package server

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPIDocument []byte

// showOpenAPI answers GET /openapi.json.
func showOpenAPI(x *exchange) any {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusOK)
	x.w.Write(openAPIDocument) // an error is the client's, who has gone
	return nil
}
