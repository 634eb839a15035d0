// Package archtest holds only a test: that the packages of this module import what the plan of the house allows, and no more.
package archtest
