"""Drawing only: from frozen pictures and a size to lines. No widget knows a session."""
