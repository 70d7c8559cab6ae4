package management

// absent are the lists of what there cannot be any of. To make one is refused in so many words.
func (h *Handler) absent() {
	for _, path := range []string{
		"policies", "operator-policies", "parameters", "topic-permissions", "vhost-limits", "user-limits",
	} {
		may := anyone
		if path == "topic-permissions" || path == "user-limits" || path == "parameters" {
			may = administrator
		}
		h.handle("GET /api/"+path, may, nothing)
		h.handle("GET /api/"+path+"/{rest...}", may, nothing)
		h.handle("PUT /api/"+path+"/{rest...}", may, func(*call) (any, error) {
			return nil, badRequest(path + " are not supported")
		})
	}
	h.handle("GET /api/global-parameters", administrator, func(*call) (any, error) {
		return listOf[clusterTags]{{"cluster_tags", []string{}}}, nil
	})
	h.handle("GET /api/feature-flags", administrator, nothing)
	h.handle("GET /api/deprecated-features", administrator, nothing)
}

// clusterTags is the one global parameter that is always there, and empty.
type clusterTags struct {
	Name  string   `json:"name"`
	Value []string `json:"value"`
}

func nothing(*call) (any, error) { return listOf[struct{}]{}, nil }
