// Package drivers tests transactions of applications that use other drivers of SQLite and Postgres than we do. It is a
// module of its own, so that those drivers never enter the go.mod of Holdfast.
package drivers
