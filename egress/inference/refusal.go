package inference

// RefusalCode classifies a Refusal. Codes are written in records: append only.
type RefusalCode string

// The codes.
const (
	RefuseModel  RefusalCode = "model"  // the model is none of Rules.Models
	RefuseHosted RefusalCode = "hosted" // the vendor would run a tool, or use what it keeps
	RefuseURL    RefusalCode = "url"    // the vendor would fetch something
	RefusePrice  RefusalCode = "price"  // it would cost more than the price list says
	RefuseForm   RefusalCode = "form"   // it is not clear what the vendor would read
)

// Refusal is why a request must not go on.
type Refusal struct {
	Code RefusalCode
	// Reason is a sentence for the client and for records. Of the request it has
	// at most a name, clipped and quoted.
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }
