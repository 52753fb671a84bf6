//go:build tools

// Package tools names what is built from this module, so that `go mod tidy` keeps it.
package tools

import _ "github.com/docker/compose/v2/cmd"
