// Package processtest holds only tests: of workers in processes of their own, which are killed, told
// to stop and cut off from their database.
package processtest
