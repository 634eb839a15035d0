//go:build !unix

package main

const onUnix = false
