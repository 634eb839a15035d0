// Package drivers tests transactions of applications that use other SQLite drivers than ours. It is a
// module of its own, so that those drivers never enter the go.mod of Holdfast.
package drivers
