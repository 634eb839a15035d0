package main

import (
	"bufio"
	"fmt"
	"os"
)

// peakMemory returns the most memory this process had, in bytes. The kernel's other count, in getrusage, includes that of the
// process which started this one.
func peakMemory() int64 {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kib); err == nil {
			return kib * 1024
		}
	}
	return 0
}
