"""The Feedback page: people say which of two responses is better, put several in order, or rate one."""
