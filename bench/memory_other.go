//go:build !linux

package main

// peakMemory is measured on Linux only.
func peakMemory() int64 { return 0 }
