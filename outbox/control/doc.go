// Package control lets other programs on the same machine look after a queue while
// its owner runs: "holdfast outbox list --file app.db", say.
//
// The owner calls [Start] beside its [outbox.Outbox]; from then on it answers on a
// Unix socket beside the file. [Dial] returns a [Client] with the same methods. Who
// may open the socket is who may open the file: the socket's mode is 0600 (on
// Windows, the folder's access rules decide). Patients' data goes over it only where
// [Client.Content] asks for it.
package control
