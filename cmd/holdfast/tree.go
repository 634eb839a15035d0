package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eda94727/holdfast"
)

func (a *app) treeCommand() *cobra.Command {
	var cancel bool
	cmd := &cobra.Command{
		Use:     "tree ID",
		GroupID: groupTasks,
		Short:   "Show or cancel a tree of tasks",
		Long: `Tree draws the task's tree: its root, what that one's handler submitted, and so on. With --cancel it
cancels all live tasks of the tree first; ID must then be the root.`,
		Example: `  holdfast tree task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM
  holdfast tree task_01KBCD2ZJ3W5T9Q6Y8XV4HN7RM --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: a.action(func(ctx context.Context, args []string) error {
			store, err := openStore(ctx, &a.db, true)
			if err != nil {
				return err
			}
			defer store.Close()
			if cancel {
				done, err := store.CancelTree(ctx, args[0])
				if err != nil {
					return err
				}
				if !a.json {
					fmt.Fprintf(a.stdout, "%d tasks canceled, %d asked to stop\n", done.Canceled, done.Asked)
				}
			}
			tree, err := store.Tree(ctx, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.stdout.document(nodeOf(tree))
			}
			fmt.Fprint(a.stdout, cleanLines(tree.String()))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "cancel all live tasks of the tree first")
	a.jsonFlag(cmd)
	return cmd
}

// treeNode is a task of a tree in JSON.
type treeNode struct {
	ID       string          `json:"id"`
	Name     string          `json:"name,omitempty"`
	Status   holdfast.Status `json:"status,omitempty"` // none of a purged root
	Waiting  bool            `json:"waiting,omitempty"`
	Children []treeNode      `json:"children,omitempty"`
}

func nodeOf(n *holdfast.TreeNode) treeNode {
	out := treeNode{ID: n.Task.ID, Name: n.Task.Name, Status: n.Task.Status, Waiting: n.Task.Waiting()}
	for _, c := range n.Children {
		out.Children = append(out.Children, nodeOf(c))
	}
	return out
}

// showLinks prints whom a task waits for, who waits for it, and its failed attempts.
func (a *app) showLinks(ctx context.Context, client *holdfast.Client, id string) error {
	d, err := client.Dependencies(ctx, id)
	if err != nil {
		return err
	}
	line := func(label, text string) {
		fmt.Fprintf(a.stdout, "%s %s\n", a.stdout.paint(dim, fmt.Sprintf("%-12s", label)), text)
	}
	label := "waited for"
	if d.Waiting {
		label = "waits for"
	}
	for _, p := range d.Parents {
		status := string(p.Status)
		if p.Deleted {
			status = strings.TrimSpace(status + " and deleted")
		}
		wants := "to succeed"
		if p.Finished {
			wants = "to end"
		}
		line(label, fmt.Sprintf("%s  %s  %s, %s", clean(p.ID), clean(p.Name), wants, status))
		label = ""
	}
	label = "waiting"
	for _, c := range d.Children {
		line(label, fmt.Sprintf("%s  %s  %s", clean(c.ID), clean(c.Name), c.Status))
		label = ""
	}
	attempts, err := client.Attempts(ctx, id)
	if err != nil {
		return err
	}
	label = "failed"
	for _, f := range attempts {
		line(label, fmt.Sprintf("attempt %d, %s, on %s: %s", f.Attempt, a.moment(f.EndedAt), clean(f.WorkerID), clean(f.Failure().Message)))
		label = ""
	}
	return nil
}
