"""The commands that move what belongs to the copied topics: the offsets of consumer groups
(`reo offsets`), ACLs (`reo acls`), topic configurations (`reo topics`), and the whole move
(`reo cutover`).
"""
